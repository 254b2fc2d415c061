"""Roles of all communicators of a run, named or inferred, and the layout that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from comminsight.model.hang import HangEvent
from comminsight.model.step import StepSummary
from comminsight.model.topology import Communicator
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Message
from comminsight.semantics.parallel_layout import RankCoordinates, parallel_layout
from comminsight.semantics.role_join import join_roles


@dataclass(frozen=True, slots=True)
class RunRoles:
    """``communicators[comm_id]`` with the roles that could be told, and the ranks' coordinates."""

    communicators: tuple[Communicator, ...]
    coordinates: RankCoordinates


def run_roles(trace: RunTrace) -> RunRoles:
    """Roles and layout from the names and from the finished ops of all ranks."""
    joined = join_roles(trace.communicators, trace.ranks, trace.world_size)
    coordinates = parallel_layout(
        joined.communicators, trace.world_size, joined.world_purpose,
        n_undecided=len(joined.undecided),
    )  # fmt: skip
    return RunRoles(joined.communicators, coordinates)


def stepped(
    ops: RunTrace, steps: Mapping[str, tuple[StepSummary, ...]], roles: RunRoles
) -> RunTrace:
    """The trace of the ops with the steps and the roles that were found."""
    return replace(ops, steps=dict(steps), communicators=roles.communicators)


def role_notes(communicators: Sequence[Communicator]) -> tuple[Message, ...]:
    """How many roles no name gave, and how sure the least sure of them is."""
    inferred = [c for c in communicators if c.is_role_inferred and c.role_evidence]
    if not inferred:
        return ()
    least = min(comm.role_confidence for comm in inferred)
    n = {"n": len(inferred), "n_all": len(communicators), "confidence": least}
    return (Message("note.inferred_roles", {**n}),)


def with_roles(event: HangEvent, communicators: Sequence[Communicator]) -> HangEvent:
    """The event with the roles that the whole run told, where it counts communicators alike."""
    keys = [[(c.comm_id, c.comm_hash, c.ordinal) for c in own]
            for own in (event.communicators, communicators)]  # fmt: skip
    if keys[0] != keys[1]:
        return event
    return msgspec.structs.replace(event, communicators=tuple(communicators))
