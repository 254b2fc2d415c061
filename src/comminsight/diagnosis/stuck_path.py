"""Which path of an op is stuck whose members are all inside: read from the network side of each.

A sender whose posted data is never completed stands at the beginning of the path; whoever waits
for arrival stands somewhere behind it. NCCL does not say to which member a collective's transfer
goes, so of a collective only the sender is named, and the receiver where it is the only other one.
"""

from __future__ import annotations

from comminsight.diagnosis.presence import Instance
from comminsight.diagnosis.stuck_op import idle_ns, wait_sides
from comminsight.model.hang import InFlightOp
from comminsight.model.ops import WaitSide


def stuck_path(instance: Instance, now_ns: int, needed_ns: float) -> tuple[int, ...]:
    """The ends of the path, ascending: sender and receiver, or the sender alone; () where the
    network was not recorded, has moved within ``needed_ns``, or points at several senders."""
    sides = {op.global_rank: wait_sides(op) for op in instance.ops}
    if any(side is None for side in sides.values()):
        return ()
    senders = [
        op.global_rank for op in instance.ops
        if _sends(op) is WaitSide.NETWORK and idle_ns(op, now_ns) >= needed_ns
    ]  # fmt: skip
    if len(senders) != 1:
        return ()
    others = [op for op in instance.ops if op.global_rank != senders[0]]
    if len(others) == 1 and _receives(others[0]) is WaitSide.ARRIVAL:
        return tuple(sorted((senders[0], others[0].global_rank)))
    return (senders[0],)


def _sends(op: InFlightOp) -> WaitSide:
    sides = wait_sides(op)
    return sides[0] if sides is not None else WaitSide.NONE


def _receives(op: InFlightOp) -> WaitSide:
    sides = wait_sides(op)
    return sides[1] if sides is not None else WaitSide.NONE
