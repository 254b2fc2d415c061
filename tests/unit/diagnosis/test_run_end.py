"""Jobs whose processes are all gone: the order of ends, and who waited for whom, decide."""

import pytest
from msgspec.structs import replace

from comminsight.diagnosis import codes
from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.unlaunched import with_awaited
from comminsight.diagnosis.verdicts import judge_end
from comminsight.model.hang import HangEvent, Liveness
from comminsight.model.trace import ClockOffsets, RunTrace
from comminsight.model.verdict import Cause, Confidence
from tests.unit.diagnosis.events import AR, NOW, S, came, comm, event, nccl_op, op, state
from tests.unit.diagnosis.test_unlaunched import LEFT, TASK

WORLD = (comm(0, range(4)),)
TRACE = RunTrace((), WORLD, {}, ClockOffsets(), 4)
DEAD, CLOSED = Liveness.DEAD, Liveness.CLOSED


def ended(ages_s: dict[int, int], gone: dict[int, tuple[Liveness, int]], absent=3) -> HangEvent:
    """Ranks in op 9 for so many seconds; ``gone``: how each ended and how long before the last."""
    waiting = [op(rank, 0, AR, 9, age_s=age) for rank, age in ages_s.items()]
    states = {
        rank: state(rank, how, last_sign_ns=NOW - before_s * S)
        for rank, (how, before_s) in gone.items()
    }
    return event(4, waiting, [came(absent, 0, 8)], states=states)


def all_in_order(n_inside: int, flags: int = TASK) -> HangEvent:
    """All ended in order, so many of them in an op whose kernel had run for 40 s."""
    gone = dict.fromkeys(range(4), (CLOSED, 0))
    running = [
        nccl_op(rank, 0, AR, 9, flags, n_channels=2, started_mask=3) for rank in range(n_inside)
    ]
    return replace(ended({}, gone), in_flight=tuple(running))


@pytest.mark.parametrize("age_s", [20, 40])  # before and after the overdue limit
def test_a_rank_that_left_long_before_the_others_were_killed(age_s):
    gone = dict.fromkeys((0, 1, 2), (DEAD, 0)) | {3: (CLOSED, age_s)}
    verdict = judge_hang(ended(dict.fromkeys((0, 1, 2), age_s), gone), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_DEAD, (3,))
    assert verdict.victims == (0, 1, 2)
    assert codes.LEFT in {entry.message.code for entry in verdict.evidence}


@pytest.mark.parametrize("age_s", [20, 40])
def test_a_rank_that_died_long_before_the_others(age_s):
    gone = dict.fromkeys((0, 1, 2), (DEAD, 0)) | {3: (DEAD, age_s)}
    verdict = judge_hang(ended(dict.fromkeys((0, 1, 2), age_s), gone), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_DEAD, (3,))
    assert verdict.confidence is Confidence.MEDIUM  # nobody saw by what


def test_who_left_with_the_others_that_were_killed_did_not_begin_it():
    gone = dict.fromkeys((0, 1, 2), (DEAD, 1)) | {3: (CLOSED, 0)}
    hung = judge_hang(ended(dict.fromkeys((0, 1, 2), 40), gone), WORLD)
    assert (hung.cause, hung.culprits) == (Cause.RANK_NOT_ENTERED, (3,))
    assert codes.READ_LOG in {action.code for action in hung.next_actions}
    short = judge_hang(ended(dict.fromkeys((0, 1, 2), 1), gone), WORLD)
    assert (short.cause, short.culprits) == (Cause.JOB_KILLED, ())


def test_a_job_ended_before_the_limit_says_who_had_not_come():
    gone = dict.fromkeys(range(4), (DEAD, 0))
    verdict = judge_hang(ended(dict.fromkeys((0, 1, 2), 20), gone), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.JOB_KILLED, ())
    assert verdict.evidence[0].message.code == codes.ABSENT
    assert verdict.evidence[0].message.params["ranks"] == [3]


def test_without_black_boxes_nobody_knows_who_was_first():
    seen = ended(dict.fromkeys((0, 1, 2), 20), dict.fromkeys(range(4), (DEAD, 0)))
    cut = tuple(replace(one, is_cut=True, last_sign_ns=0, is_whole=False) for one in seen.ranks)
    verdict = judge_hang(replace(seen, ranks=cut), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert codes.MISSING_BOX in {missing.code for missing in verdict.missing}
    assert codes.AT_DEATH not in {entry.message.code for entry in verdict.evidence}


def test_all_ended_in_order_out_of_a_hang():
    verdicts = judge_end((), all_in_order(3), TRACE)
    assert [(v.cause, v.culprits) for v in verdicts] == [(Cause.RANK_NOT_ENTERED, (3,))]


def test_all_ended_in_order_and_nobody_is_missed():
    assert judge_end((), all_in_order(4), TRACE) == ()
    assert judge_end((), all_in_order(3, flags=0), TRACE) == ()  # nobody waited for it


@pytest.mark.parametrize(("age_s", "n_told"), [(1, 0), (5, 1)])
def test_waiting_is_told_while_it_lasts_and_not_yet_judged(age_s, n_told):
    waiting = [op(rank, 0, AR, 9, age_s=age_s) for rank in (0, 1, 2)]
    verdicts = judge_end((), event(4, waiting, [came(3, 0, 8)]), TRACE)
    assert [(v.cause, v.culprits) for v in verdicts] == [(Cause.NO_VERDICT, ())] * n_told
    told = [entry.message.params["absent"] for v in verdicts for entry in v.evidence]
    assert told == [[3]] * n_told


def test_a_call_without_a_task_is_no_hang_unless_others_run_it():
    called = [nccl_op(rank, 0, AR, 9, LEFT) for rank in range(4)]
    assert judge_end((), event(4, called), TRACE) == ()
    running = [nccl_op(r, 0, AR, 9, TASK, n_channels=2, started_mask=3) for r in range(3)]
    seen = with_awaited(event(4, [*running, called[3]]), WORLD)
    verdicts = judge_end((), seen, TRACE)
    assert [(v.cause, v.culprits) for v in verdicts] == [(Cause.HOST_BLOCKED, (3,))]
