"""Who holds an op that all members entered: the rank whose recorder shows no sign any more."""

from __future__ import annotations

import pytest

from comminsight.diagnosis import codes_calls
from comminsight.diagnosis.hang import judge_hang
from comminsight.model.hang import Liveness
from comminsight.model.verdict import Cause, Verdict
from tests.unit.diagnosis.events import AR, NOW, comm, event, op, state

S = 1_000_000_000
FRESH_S = 0.1
WORLD = (comm(0, (0, 1, 2, 3)),)


def judged(silent_s: dict[int, float | None]) -> Verdict:
    """All four ranks are in one all-reduce; None: no sign of that recorder is known."""
    states = {
        rank: state(rank, last_sign_ns=0 if since_s is None else NOW - int(since_s * S))
        for rank, since_s in silent_s.items()
    }
    return judge_hang(event(4, [op(rank, 0, AR, 5) for rank in range(4)], states=states), WORLD)


@pytest.mark.parametrize("frozen", [(0,), (2,), (1, 3)])
def test_the_silent_rank_is_named(frozen: tuple[int, ...]) -> None:
    verdict = judged({rank: 300.0 if rank in frozen else FRESH_S for rank in range(4)})
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, frozen)
    assert verdict.victims == tuple(rank for rank in range(4) if rank not in frozen)
    said = [e.global_rank for e in verdict.evidence if e.message.code == codes_calls.FROZEN]
    assert said == list(frozen)


def test_signs_that_a_busy_machine_delays_do_not_hide_it() -> None:
    assert judged({0: 1.4, 1: 0.9, 2: 300.0, 3: 0.5}).culprits == (2,)


@pytest.mark.parametrize(
    "silent_s",
    [
        {0: FRESH_S, 1: FRESH_S, 2: FRESH_S, 3: FRESH_S},
        {0: 300.0, 1: 300.0, 2: 300.0, 3: 300.0},  # the node stood still, or whoever looked at it
        {0: FRESH_S, 1: FRESH_S, 2: FRESH_S, 3: 1.5},  # a busy machine
        {0: FRESH_S, 1: FRESH_S, 2: 7.0, 3: 20.0},  # so busy that another one is late too
        {0: FRESH_S, 1: FRESH_S, 2: FRESH_S, 3: None},
        {0: None, 1: FRESH_S, 2: FRESH_S, 3: 300.0},
    ],
)
def test_nobody_is_named_unless_all_others_show_signs(silent_s: dict[int, float | None]) -> None:
    verdict = judged(silent_s)
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, ())


def test_of_a_process_that_may_be_gone_silence_is_no_freeze() -> None:
    states = {rank: state(rank, last_sign_ns=NOW - S // 10) for rank in range(3)}
    states[3] = state(3, Liveness.UNKNOWN, last_sign_ns=NOW - 300 * S)
    verdict = judge_hang(event(4, [op(r, 0, AR, 5) for r in range(4)], states=states), WORLD)
    assert verdict.culprits == ()
