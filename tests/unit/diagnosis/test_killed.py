"""How a run ended: all killed, one failed first, some gone, in order."""

from __future__ import annotations

import pytest

from comminsight.diagnosis import codes
from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.killed import judge_killed
from comminsight.model.hang import Liveness, RankState
from comminsight.model.verdict import Cause, Confidence
from comminsight.sim import KilledJob, hang_event, megatron_layout, simulate
from tests.unit.diagnosis.events import AR, S, came, comm, event, op, state

WORLD = (comm(0, range(4)),)
WAITING = [op(rank, 0, AR, 9, age_s=2) for rank in (0, 1, 2)]


def dead(rank: int, exit_status: str = "signal 9", last_s: int = 900) -> RankState:
    return state(rank, Liveness.DEAD, exit_status=exit_status, last_event_ns=last_s * S)


@pytest.mark.parametrize("judge", [judge_killed, judge_hang])
def test_a_killed_job_states_what_was_in_flight(judge: type[judge_killed]) -> None:
    states = {rank: dead(rank) for rank in range(4)}
    verdict = judge(event(4, WAITING, states=states), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.JOB_KILLED, ())
    assert verdict.confidence is Confidence.HIGH
    at_death = [e.message.params for e in verdict.evidence if e.message.code == codes.AT_DEATH]
    assert [(p["rank"], p["op"], p["match_seq"]) for p in at_death] == [
        (rank, "all_reduce", 9) for rank in (0, 1, 2)
    ]
    assert verdict.measures["n_in_flight"] == 3


def test_without_an_exit_status_it_is_said_to_be_missing() -> None:
    verdict = judge_killed(event(4, (), states={r: dead(r, "") for r in range(4)}), WORLD)
    assert (verdict.cause, verdict.confidence) == (Cause.JOB_KILLED, Confidence.MEDIUM)
    assert verdict.missing[0].params == {"ranks": [0, 1, 2, 3]}


def test_the_rank_that_failed_by_itself_is_named_among_the_killed() -> None:
    """T3: what comes after the first failure is a consequence."""
    states = {rank: dead(rank, "SIGTERM") for rank in (0, 1, 3)}
    states[2] = dead(2, "signal 11", last_s=890)
    verdict = judge_killed(event(4, WAITING, states=states), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_DEAD, (2,))
    assert verdict.victims == (0, 1)


def test_some_dead_and_some_alive() -> None:
    verdict = judge_killed(event(4, WAITING, states={3: dead(3)}), WORLD)
    assert (verdict.cause, verdict.culprits, verdict.victims) == (
        Cause.RANK_DEAD, (3,), (0, 1, 2),
    )  # fmt: skip


def test_an_orderly_end_is_healthy_and_an_unfinished_one_is_not_judged() -> None:
    closed = {rank: state(rank, Liveness.CLOSED) for rank in range(4)}
    assert judge_killed(event(4, (), states=closed), WORLD).cause is Cause.HEALTHY
    unfinished = judge_killed(event(4, WAITING, states=closed), WORLD)
    assert unfinished.cause is Cause.NO_VERDICT
    assert unfinished.missing[0].code == codes.MISSING_ORIGIN


def test_ranks_that_left_no_box_are_listed() -> None:
    states: dict[int, RankState | None] = {rank: dead(rank) for rank in range(3)}
    states[3] = None
    verdict = judge_killed(event(4, (), states=states), WORLD)
    assert verdict.missing[-1].params == {"ranks": [3]}
    assert verdict.coverage.ranks_missing == (3,)


def test_a_simulated_job_that_was_killed() -> None:
    run = simulate(megatron_layout(2, 2, 2), steps=9, seed=4, faults=[KilledJob(333_000_000)])
    verdict = judge_hang(hang_event(run), run.communicators)
    assert (verdict.cause, verdict.culprits) == (Cause.JOB_KILLED, ())
    assert verdict.first_bad_op is not None
    assert verdict.coverage.ranks_seen == 8


def test_a_job_killed_while_it_hung_is_judged_for_what_it_hung_on() -> None:
    waiting = [op(rank, 0, AR, 9) for rank in (0, 1, 2)]
    states = {rank: dead(rank) for rank in range(4)}
    verdict = judge_hang(event(4, waiting, [came(3, 0, 8)], states=states), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (3,))
    assert verdict.confidence is Confidence.MEDIUM
    assert verdict.missing[0].code == codes.MISSING_END_TIME
