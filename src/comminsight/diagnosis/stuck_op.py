"""Where an NCCL op in flight stands, read from what its callbacks left in the slot.

    called ─► group ended ─► planned, connected ─► launched ─► kernel begins ─► channels stop
    OPEN_GROUP    HOST                               LAUNCH     NOT_STARTED      INSIDE …

A kernel that runs and does not end waits for its peers; where the network was recorded, it can be
told whether the local GPU, the receiver's credit, the network or a sender is waited for. What the
masks left out is not guessed: the stage is then UNTOLD, or INSIDE without a side.

Source: the callback order of NCCL's profiler interface, as ``native/nccl`` records it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from comminsight.model.hang import InFlightOp
from comminsight.model.ops import SlotFlag, WaitSide


class Stage(StrEnum):
    """The part of its way an op is in."""

    UNTOLD = "untold"  # not of NCCL, or recorded without what would tell
    OPEN_GROUP = "open_group"  # called inside a group of calls that has not been ended
    HOST = "host"  # in NCCL's host code: planning, connecting, registering
    LAUNCH = "launch"  # the kernel launch does not return
    NOT_STARTED = "not_started"  # launched, and not running: its stream or GPU is held by others
    INSIDE = "inside"  # the kernel runs on all its channels and waits for peers
    PARTLY_STOPPED = "partly_stopped"  # some channels are done: one path is stuck
    LOCAL_GPU = "local_gpu"  # the network side waits for the local GPU
    PEER_CREDIT = "peer_credit"  # ... for the receiver to make room
    NETWORK = "network"  # ... for what was posted to be completed
    ARRIVAL = "arrival"  # ... for data from the sender
    FINISHED = "finished"  # all channels have stopped


BEFORE_KERNEL = frozenset({Stage.OPEN_GROUP, Stage.HOST, Stage.LAUNCH, Stage.NOT_STARTED})
IN_KERNEL = frozenset(
    {
        Stage.INSIDE,
        Stage.PARTLY_STOPPED,
        Stage.LOCAL_GPU,
        Stage.PEER_CREDIT,
        Stage.NETWORK,
        Stage.ARRIVAL,
    }
)

# What is waited for, the most telling first: data that does not arrive is what others' trouble
# looks like from here. (side of the send or receive step, stage)
_SEND_SIDES = (
    (WaitSide.NETWORK, Stage.NETWORK),
    (WaitSide.PEER, Stage.PEER_CREDIT),
    (WaitSide.GPU, Stage.LOCAL_GPU),
)
_RECV_SIDES = (
    (WaitSide.FLUSH, Stage.LOCAL_GPU),
    (WaitSide.GPU, Stage.LOCAL_GPU),
    (WaitSide.ARRIVAL, Stage.ARRIVAL),
)


def stage_of(op: InFlightOp) -> Stage:
    """The stage of ``op``; UNTOLD where it was recorded without what would tell."""
    flags = op.slot_flags
    if not flags & SlotFlag.NCCL or not op.is_observable:
        return Stage.UNTOLD
    if op.started_mask or op.stopped_mask:
        return _stage_in_kernel(op)
    if flags & SlotFlag.LAUNCH_BEGUN and not flags & SlotFlag.LAUNCH_RETURNED:
        return Stage.LAUNCH
    if flags & SlotFlag.TASK_SEEN:
        return Stage.NOT_STARTED
    if flags & SlotFlag.API_RETURNED and not flags & SlotFlag.GROUP_ENDED:
        return Stage.OPEN_GROUP
    return Stage.HOST


def _stage_in_kernel(op: InFlightOp) -> Stage:
    if op.is_peerless:
        return Stage.INSIDE  # its calls share channels: that all have stopped once tells nothing
    n_stopped = op.stopped_mask.bit_count()
    if n_stopped >= op.n_channels > 0:
        return Stage.FINISHED
    if not op.n_channels and not running_channels(op):
        return Stage.UNTOLD  # nobody knows of how many channels these are all
    return Stage.PARTLY_STOPPED if n_stopped else network_stage(op)


def network_stage(op: InFlightOp) -> Stage:
    """What the network side of a running kernel waits for; INSIDE where it was not recorded."""
    sides = wait_sides(op)
    if sides is None:
        return Stage.INSIDE
    send, receive = sides
    for side, stage in _SEND_SIDES:
        if send is side:
            return stage
    return next((stage for side, stage in _RECV_SIDES if receive is side), Stage.INSIDE)


def wait_sides(op: InFlightOp) -> tuple[WaitSide, WaitSide] | None:
    """What sends and receives wait for; None where the network of the op was not recorded."""
    if not op.slot_flags & SlotFlag.NETWORK_SEEN:
        return None
    return _side(op.wait_side & 0xFF), _side(op.wait_side >> 8 & 0xFF)


def _side(code: int) -> WaitSide:
    return WaitSide(code) if code in {int(side) for side in WaitSide} else WaitSide.NONE


def running_channels(op: InFlightOp) -> tuple[int, ...]:
    """Channels whose kernel has begun and not left, ascending."""
    return channels(op.started_mask & ~op.stopped_mask)


def channels(mask: int) -> tuple[int, ...]:
    """The channel numbers of a mask, ascending."""
    return tuple(channel for channel in range(mask.bit_length()) if mask >> channel & 1)


def idle_ns(op: InFlightOp, now_ns: int) -> int:
    """How long the network has moved nothing for the op; its age where it never did."""
    return max(0, now_ns - op.net_progress_ns) if op.net_progress_ns else op.age_ns


def by_stage(ops: Iterable[InFlightOp]) -> dict[Stage, list[InFlightOp]]:
    """The ops of each stage, in the order of the way that an op goes."""
    found: dict[Stage, list[InFlightOp]] = {stage: [] for stage in Stage}
    for op in ops:
        found[stage_of(op)].append(op)
    return {stage: members for stage, members in found.items() if members}
