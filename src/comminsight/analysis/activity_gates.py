"""Who was awaited in calls that traces of several ranks show; one rank's alone tells nothing.

Calls of a communicator are matched by their order, where each of its members has a trace and all of
these show the same ops in the same steps, one after the other. The clocks of the traces are joined
by the calls that hold all members together (see ``clock``): each rank is taken to have one of its
own, and what the calls leave open is the error. Whom a send or a receive meets no trace tells.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from comminsight.analysis.call_gates import (
    DOUBTS,
    KNOWN,
    CallGates,
    MatchedCalls,
    call_gates,
)
from comminsight.analysis.clock import SYNCHRONISING_OPS, joined_clocks
from comminsight.analysis.matching import IS_UNEVEN
from comminsight.errors import FormatError
from comminsight.model.activity import Activity
from comminsight.model.exposed import OwnerDoubt
from comminsight.model.ops import P2P_OPS
from comminsight.model.ranges import range_expand
from comminsight.model.trace import ClockOffsets

_MEMBERS = re.compile(r" \(([0-9,:-]+)\)$")
_OF_ONE_RANK = re.compile(r" of rank -?\d+$")


def activity_gates(calls: Sequence[Activity], world_size: int) -> tuple[CallGates, int | None]:
    """The gates of communications, each on its own rank's clock, and the error of the clocks; None
    where none were joined. ``world_size`` is 0 where it is not known."""
    doubt = np.full(len(calls), KNOWN)
    instance = np.full(len(calls), -1)
    by_label: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, one in enumerate(calls):
        if one.op not in P2P_OPS:
            by_label[one.comm_label][one.global_rank].append(row)
    lone = np.flatnonzero(np.isin([one.op for one in calls], [int(op) for op in P2P_OPS]))
    is_alone = world_size != 1 and len({one.global_rank for one in calls}) == 1
    n = len(lone)
    doubt[lone], instance[lone] = DOUBTS.index(OwnerDoubt.UNMATCHED), np.arange(n)
    for label, by_rank in by_label.items():
        members = OwnerDoubt.ABSENT if is_alone else members_of(label, world_size)
        why = _match(calls, by_rank, members)
        for own in by_rank.values():
            if why is None:
                instance[own] = np.arange(n, n + len(own))
            else:
                doubt[own], instance[own] = DOUBTS.index(why), np.arange(n, n + len(own))
                n += len(own)
        n += len(next(iter(by_rank.values()))) if why is None else 0
    return _gated(calls, instance, doubt)


def members_of(label: str, world_size: int) -> frozenset[int] | OwnerDoubt:
    """The members that a label of a communicator states, else all ranks of the world; why there is
    no telling where the traces are of no one job, or the label is of one rank alone."""
    if world_size == 0 or _OF_ONE_RANK.search(label):
        return OwnerDoubt.UNMATCHED
    if (stated := _MEMBERS.search(label)) is None:
        return frozenset(range(world_size))
    try:
        return frozenset(range_expand(stated[1]))
    except FormatError:
        return OwnerDoubt.UNMATCHED


def _match(
    calls: Sequence[Activity],
    by_rank: dict[int, list[int]],
    members: frozenset[int] | OwnerDoubt,
) -> OwnerDoubt | None:
    """Sorts the rows of each rank by start; None where the nth of one is the nth of all."""
    if isinstance(members, OwnerDoubt):
        return members
    if by_rank.keys() != members:
        return OwnerDoubt.ABSENT
    for own in by_rank.values():
        own.sort(key=lambda row: calls[row].start_ns)
        if any(calls[b].start_ns < calls[a].end_ns for a, b in pairwise(own)):
            return OwnerDoubt.UNMATCHED
    shapes = {tuple(_shape(calls[row]) for row in own) for own in by_rank.values()}
    return None if len(shapes) == 1 else OwnerDoubt.UNMATCHED


def _shape(one: Activity) -> tuple[int, int, int]:
    return one.step, one.op, 0 if IS_UNEVEN[one.op] else one.size_bytes


def _gated(
    calls: Sequence[Activity], instance: np.ndarray, doubt: np.ndarray
) -> tuple[CallGates, int | None]:
    rank = np.array([one.global_rank for one in calls], np.int64)
    op = np.array([one.op for one in calls], np.int64)
    start_ns = np.array([one.start_ns for one in calls], np.int64)
    end_ns = np.array([one.end_ns for one in calls], np.int64)
    clocks = _clocks(rank, instance, start_ns, end_ns, (doubt == KNOWN) & _holds_all(op))
    ranks, column = np.unique(rank, return_inverse=True)
    names = [str(one) for one in ranks.tolist()]
    offset_ns = np.array([clocks.offset_ns.get(one, 0) for one in names], np.int64)[column]
    joined = np.array([one in clocks.offset_ns for one in names], bool)[column]
    error_ns = sum(sorted(clocks.error_ns.values())[-2:])  # of two ranks, each to the first
    doubt[(doubt == KNOWN) & ~joined] = DOUBTS.index(OwnerDoubt.CLOCKS)
    found = call_gates(
        MatchedCalls(
            rank=rank, instance=instance, op=op, start_ns=start_ns + offset_ns,
            end_ns=end_ns + offset_ns, is_root=np.zeros(len(rank), bool), doubt=doubt,
            error_ns=np.full(len(rank), error_ns),
        )
    )  # fmt: skip
    local = dataclasses.replace(
        found, gate_ns=found.gate_ns - offset_ns, alone_ns=found.alone_ns - offset_ns
    )
    return local, error_ns if len(clocks.offset_ns) > 1 else None


def _holds_all(op: np.ndarray) -> np.ndarray:
    return np.isin(op, [int(one) for one in SYNCHRONISING_OPS])


def _clocks(
    rank: np.ndarray, instance: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray,
    is_evidence: np.ndarray,
) -> ClockOffsets:  # fmt: skip
    """Offsets by rank; only ranks that have calls to be matched are in it."""
    ends = {}
    for one in np.unique(rank[is_evidence]).tolist():
        own = np.flatnonzero(is_evidence & (rank == one))
        own = own[np.argsort(instance[own])]
        spans = np.column_stack([start_ns[own], end_ns[own], end_ns[own]])
        ends[str(one)] = (instance[own], spans)
    return joined_clocks(ends)
