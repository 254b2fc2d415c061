"""Calls that have returned and of which nothing was launched: in a helper thread, or unseen."""

from __future__ import annotations

import pytest

from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.unlaunched import with_awaited
from comminsight.model.hang import HangEvent
from comminsight.model.ops import Op, SlotFlag
from comminsight.model.verdict import Cause, Verdict
from tests.unit.diagnosis.events import AR, BC, RECV, SEND, came, comm, event, nccl_op, state

F = SlotFlag
LEFT = F.NCCL | F.API_SEEN | F.API_RETURNED | F.GROUP_ENDED | F.GROUP_LEFT
IN_LAUNCH = LEFT | F.LAUNCH_BEGUN
TASK = IN_LAUNCH | F.LAUNCH_RETURNED | F.TASK_SEEN
WORLD = (comm(0, range(3)),)


def judge(seen: HangEvent) -> Verdict:
    return judge_hang(with_awaited(seen, WORLD), WORLD)


def waiting(seen: HangEvent) -> list[int]:
    return [op.global_rank for op in with_awaited(seen, WORLD).waiting]


def left(rank: int, name: Op = AR, flags: int = LEFT):
    return nccl_op(rank, 0, name, 1, flags)


def running(rank: int):
    return nccl_op(rank, 0, AR, 1, TASK, n_channels=2, started_mask=3)


@pytest.mark.parametrize("name", [AR, BC])
def test_where_all_have_called_and_nobody_launched_nothing_is_known(name):
    assert waiting(event(3, [left(rank, name) for rank in range(3)])) == []


def test_the_first_op_of_a_communicator_that_one_rank_never_calls():
    verdict = judge(event(3, [left(0), left(1)]))
    assert (verdict.cause, verdict.culprits, verdict.victims) == (
        Cause.RANK_NOT_ENTERED, (2,), (0, 1),
    )  # fmt: skip


def test_a_root_may_be_over_before_others_call():
    assert waiting(event(3, [left(0, BC), left(1, BC)])) == []


def test_nobody_is_missed_of_whom_there_is_no_evidence():
    assert waiting(event(3, [left(0), left(1)], states={2: None})) == []
    lossy = {2: state(2, records_lost=1)}
    assert waiting(event(3, [left(0), left(1)], [came(2, 0, 0)], states=lossy)) == []


@pytest.mark.parametrize("flags", [LEFT, IN_LAUNCH])
def test_what_has_a_task_elsewhere_has_one_here(flags):
    verdict = judge(event(3, [running(0), left(1, flags=flags), running(2)]))
    assert (verdict.cause, verdict.culprits) == (Cause.HOST_BLOCKED, (1,))


def test_a_launch_that_returned_may_be_of_what_has_no_task():
    flags = IN_LAUNCH | F.LAUNCH_RETURNED
    assert waiting(event(3, [left(0, flags=flags), left(1, flags=flags)])) == []


def test_sends_may_be_over_before_their_receive():
    assert waiting(event(3, [nccl_op(0, 0, SEND, 1, LEFT, peer=1)])) == []


def test_a_send_of_the_same_number_is_no_task_of_a_collective():
    sending = nccl_op(0, 0, SEND, 1, TASK, peer=2, n_channels=2, started_mask=3)
    assert waiting(event(3, [sending, *(left(rank) for rank in range(3))])) == [0]


def test_who_receives_by_the_same_number_is_not_inside_the_collective():
    receiving = nccl_op(2, 0, RECV, 1, TASK, peer=0, n_channels=2, started_mask=3)
    assert waiting(event(3, [receiving, left(0), left(1)])) == [2, 0, 1]
