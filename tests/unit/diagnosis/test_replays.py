"""Hangs of jobs in which replays of a captured graph and calls share one communicator."""

from __future__ import annotations

from comminsight.diagnosis.hang import judge_hang
from comminsight.model.ops import SlotFlag
from comminsight.model.verdict import Cause
from tests.unit.diagnosis.events import AG, AR, came, comm, event, nccl_op

RUNNING = SlotFlag.NCCL | SlotFlag.TASK_SEEN | SlotFlag.TASK_HANDED_OVER
WORLD = (comm(0, range(3)),)


def running(rank, name, n, *, is_replay):
    return nccl_op(rank, 0, name, n, RUNNING, n_channels=2, started_mask=3, is_replay=is_replay)


def test_equal_numbers_of_a_replay_and_of_a_call_are_no_mismatch():
    """All ranks wait in their third replay and have long been told of the third call."""
    seen = [running(rank, AR, 3, is_replay=True) for rank in range(3)]
    seen += [running(rank, AG, 3, is_replay=False) for rank in range(3)]
    verdict = judge_hang(event(3, seen), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.ALL_PRESENT_STUCK, ())


def test_a_rank_ahead_in_its_calls_may_be_absent_from_a_replay():
    seen = [running(rank, AR, 4, is_replay=True) for rank in (0, 1)]
    moved = [came(rank, 0, 9) for rank in range(3)]
    replayed = [came(0, 0, 4, 3, is_replay=True), came(1, 0, 4, 3, is_replay=True),
                came(2, 0, 3, is_replay=True)]  # fmt: skip
    verdict = judge_hang(event(3, seen, [*moved, *replayed]), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (2,))
    assert verdict.first_bad_op is not None
    assert (verdict.first_bad_op.match_seq, verdict.first_bad_op.is_replay) == (4, True)


def test_a_rank_behind_in_its_replays_is_in_the_call_that_all_wait_in():
    seen = [running(rank, AG, 4, is_replay=False) for rank in range(3)]
    moved = [came(rank, 0, 4, 3) for rank in range(3)]
    replayed = [came(2, 0, 1, is_replay=True)]
    verdict = judge_hang(event(3, seen, [*moved, *replayed]), WORLD)
    assert verdict.cause is Cause.ALL_PRESENT_STUCK
