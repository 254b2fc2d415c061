"""Calls that returned before anything was launched, and that are known not to be over.

A communicator that does not block launches in a helper thread, which may be stuck in connecting: to
the caller such a call looks like one that NCCL does in a way of which it tells nothing (copy
engine, symmetric kernel). What the other members show decides: if one of them has a task for the
same op, so should this one have; if one never entered, no op that needs all members can be over.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from comminsight.analysis.clock import SYNCHRONISING_OPS
from comminsight.diagnosis.presence import InstanceKey, Observed, observe
from comminsight.model.hang import HangEvent, InFlightOp, Presence
from comminsight.model.ops import RecordKind
from comminsight.model.topology import Communicator


def with_awaited(event: HangEvent, communicators: Sequence[Communicator]) -> HangEvent:
    """The event with ``is_awaited`` set where the evidence of other members says so."""
    if not any(op.is_unlaunched for op in event.in_flight):
        return event
    observed = observe(event, communicators)
    told = {_key(op) for op in _collectives(event) if op.is_observable}
    return replace(
        event,
        in_flight=tuple(
            replace(op, is_awaited=True) if _is_awaited(op, told, observed) else op
            for op in event.in_flight
        ),
    )


def _is_awaited(op: InFlightOp, told: set[InstanceKey], observed: Observed) -> bool:
    if not op.is_unlaunched or op.kind != RecordKind.COLLECTIVE:
        return False
    if op.comm_id not in observed.communicators or op.comm_id in observed.miscounts:
        return False
    return _key(op) in told or (op.op in SYNCHRONISING_OPS and _lacks_member(op, observed))


def _lacks_member(op: InFlightOp, observed: Observed) -> bool:
    members = observed.communicators[op.comm_id].members
    others = _collectives(observed.event)
    inside = {other.global_rank for other in others if _key(other) == _key(op)}
    outside = (rank for rank in members if rank >= 0 and rank not in inside)
    return any(observed.presence(rank, _key(op)) is Presence.ABSENT for rank in outside)


def _collectives(event: HangEvent) -> list[InFlightOp]:
    """The collectives in flight: sends and receives count from 1 for themselves."""
    return [op for op in event.in_flight if op.kind == RecordKind.COLLECTIVE]


def _key(op: InFlightOp) -> InstanceKey:
    return InstanceKey(op.comm_id, op.match_seq, is_replay=op.is_replay)
