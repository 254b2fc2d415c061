"""The stage of an op in flight, from the flags and masks of its slot."""

from __future__ import annotations

import msgspec
import pytest

from comminsight.diagnosis.stuck_op import Stage, by_stage, channels, stage_of, wait_sides
from comminsight.model.ops import Op, RecordKind, SlotFlag, WaitSide
from tests.unit.diagnosis.events import AR, nccl_op

F = SlotFlag
CALLED = F.NCCL | F.API_SEEN | F.API_RETURNED
ENDED = CALLED | F.GROUP_ENDED
LAUNCHED = ENDED | F.LAUNCH_BEGUN | F.LAUNCH_RETURNED
TASK = LAUNCHED | F.TASK_SEEN | F.TASK_HANDED_OVER | F.GROUP_LEFT
TASK_V4 = F.NCCL | F.TASK_SEEN | F.TASK_HANDED_OVER
NET = TASK | F.NETWORK_SEEN
ALL, HALF = 0b1111, 0b0011


@pytest.mark.parametrize(
    ("flags", "started", "stopped", "stage"),
    [
        (0, 0, 0, Stage.UNTOLD),  # gloo
        (F.NCCL | F.API_SEEN, 0, 0, Stage.HOST),  # the call itself has not returned
        (CALLED, 0, 0, Stage.OPEN_GROUP),
        (ENDED, 0, 0, Stage.HOST),
        (ENDED | F.LAUNCH_BEGUN, 0, 0, Stage.LAUNCH),
        (LAUNCHED, 0, 0, Stage.HOST),
        (TASK, 0, 0, Stage.NOT_STARTED),
        (TASK_V4, 0, 0, Stage.NOT_STARTED),
        (TASK, ALL, 0, Stage.INSIDE),
        (TASK, HALF, 0, Stage.INSIDE),
        (TASK, ALL, HALF, Stage.PARTLY_STOPPED),
        (TASK, ALL, ALL, Stage.FINISHED),
        (TASK, 0xF00, 0xF00, Stage.FINISHED),  # channels need not begin at 0
        (TASK, 0, ALL, Stage.FINISHED),  # a stop without its start
        (TASK | F.NO_KERNEL_EVENTS, 0, 0, Stage.UNTOLD),
        (ENDED | F.GROUP_LEFT, 0, 0, Stage.UNTOLD),  # non-blocking, or never to be seen
    ],
)
def test_the_stage_of_an_op(flags: int, started: int, stopped: int, stage: Stage) -> None:
    op = nccl_op(0, 0, AR, 1, flags, n_channels=4, started_mask=started, stopped_mask=stopped)
    assert stage_of(op) is stage


@pytest.mark.parametrize(
    ("send", "receive", "stage"),
    [
        (WaitSide.NONE, WaitSide.NONE, Stage.INSIDE),
        (WaitSide.GPU, WaitSide.NONE, Stage.LOCAL_GPU),
        (WaitSide.PEER, WaitSide.ARRIVAL, Stage.PEER_CREDIT),
        (WaitSide.NETWORK, WaitSide.ARRIVAL, Stage.NETWORK),
        (WaitSide.NONE, WaitSide.ARRIVAL, Stage.ARRIVAL),
        (WaitSide.NONE, WaitSide.FLUSH, Stage.LOCAL_GPU),
        (WaitSide.NONE, WaitSide.GPU, Stage.LOCAL_GPU),
        (99, 98, Stage.INSIDE),  # of a newer version
    ],
)
def test_what_the_network_side_waits_for(send: int, receive: int, stage: Stage) -> None:
    side = int(send) | int(receive) << 8
    op = nccl_op(0, 0, AR, 1, NET, n_channels=4, started_mask=ALL, wait_side=side)
    assert stage_of(op) is stage


def test_a_side_that_was_not_recorded_is_not_read() -> None:
    op = nccl_op(0, 0, AR, 1, TASK, n_channels=4, started_mask=ALL, wait_side=WaitSide.NETWORK)
    assert stage_of(op) is Stage.INSIDE
    assert wait_sides(op) is None


@pytest.mark.parametrize(("stopped", "stage"), [(ALL, Stage.UNTOLD), (0, Stage.INSIDE)])
def test_an_op_whose_channels_are_not_counted_is_never_finished(stopped: int, stage: Stage) -> None:
    op = nccl_op(0, 0, AR, 1, TASK, started_mask=ALL, stopped_mask=stopped)
    assert stage_of(op) is stage


def test_the_shared_channels_of_a_fan_out_tell_only_that_it_runs() -> None:
    more = {"kind": RecordKind.P2P, "n_folded": 20, "n_channels": 2}
    base = nccl_op(0, 0, Op.ALL_TO_ALL, 1, TASK, started_mask=3, stopped_mask=3)
    assert stage_of(msgspec.structs.replace(base, **more)) is Stage.INSIDE


def test_ops_by_stage_go_the_way_of_an_op() -> None:
    inside = nccl_op(1, 0, AR, 1, TASK, n_channels=1, started_mask=1)
    found = by_stage([inside, nccl_op(0, 0, AR, 1, CALLED), nccl_op(2, 0, AR, 1, CALLED)])
    assert list(found) == [Stage.OPEN_GROUP, Stage.INSIDE]
    assert [op.global_rank for op in found[Stage.OPEN_GROUP]] == [0, 2]


def test_channels_of_a_mask() -> None:
    assert channels(0b1010 | 1 << 63) == (1, 3, 63)
