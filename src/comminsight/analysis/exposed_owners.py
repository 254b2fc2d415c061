"""Exposed time by what it went into, by role and by phase: shares that add up.

Within a rank and step each instant belongs to one call: of those that run at it, the one that ends
last, since it is what holds the rank up. Of that call the time until its gate is waiting, the rest
is transfer (see ``call_gates``). Summed over the calls this is the exposed time exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.call_gates import DOUBTS, KNOWN, CallGates
from comminsight.analysis.exposure import Exposure, RankStep
from comminsight.analysis.intervals import EMPTY, length_ns, united, without
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.exposed import (
    OwnerDoubt,
    OwnerExposed,
    OwnerKind,
    PartExposed,
    StreamExposed,
)

OwnerKey = tuple[OwnerKind, int, str, OwnerDoubt | None]


@dataclass(frozen=True, slots=True)
class CallShares:
    """Columns ``(n_calls,)`` ns of exposed time: waiting for somebody, of it for one rank alone,
    and in transfer; of instants with several calls only one has the time."""

    wait_ns: np.ndarray
    alone_ns: np.ndarray
    move_ns: np.ndarray

    @property
    def exposed_ns(self) -> np.ndarray:
        """What the call has of the rank's exposed time."""
        total: np.ndarray = self.wait_ns + self.move_ns
        return total


def call_shares(
    calls: Sequence[Activity], gates: CallGates, found: Iterable[Exposure]
) -> CallShares:
    """The shares of all ``calls``, which have ended; sums over a rank and step are its
    ``exposed_ns``."""
    start_ns = np.array([one.start_ns for one in calls], np.int64)
    end_ns = np.array([one.end_ns for one in calls], np.int64)
    rows: dict[RankStep, list[int]] = defaultdict(list)
    for row, one in enumerate(calls):
        rows[one.global_rank, one.step].append(row)
    shares = CallShares(*(np.zeros(len(calls), np.int64) for _ in range(3)))
    for place in found:
        if (place.global_rank, place.step) not in rows:
            continue
        own = np.array(rows[place.global_rank, place.step], np.int64)
        exposed = without(place.communication, place.hiding)
        low, high = _slices(start_ns[own], end_ns[own])
        gate = gates.gate_ns[own].clip(low, high)
        alone = gates.alone_ns[own].clip(low, gate)
        edges = np.concatenate([low, alone, gate, high])
        at_low, at_alone, at_gate, at_high = below_ns(exposed, edges).reshape(4, -1)
        shares.wait_ns[own] = at_gate - at_low
        shares.alone_ns[own] = at_gate - at_alone
        shares.move_ns[own] = at_high - at_gate
    return shares


def _slices(start_ns: np.ndarray, end_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What of each interval no other covers that ends later (or as late, and began earlier):
    disjoint, and together the union of all."""
    order = np.lexsort((start_ns, -end_ns))
    reach = np.minimum.accumulate(np.r_[np.iinfo(np.int64).max, start_ns[order]])[:-1]
    high = np.empty_like(end_ns)
    high[order] = np.minimum(end_ns[order], reach)
    return start_ns, np.maximum(high, start_ns)


def below_ns(intervals: np.ndarray, at_ns: np.ndarray) -> np.ndarray:
    """How much of the set lies before each instant, ``(n,)`` int64."""
    if not len(intervals):
        return np.zeros(len(at_ns), np.int64)
    ends = np.cumsum(intervals[:, 1] - intervals[:, 0])
    place = np.searchsorted(intervals[:, 0], at_ns, "right")
    last = np.maximum(place - 1, 0)
    over_ns = np.maximum(intervals[last, 1] - at_ns, 0)
    below: np.ndarray = np.where(place > 0, ends[last] - over_ns, 0)
    return below


def owners(
    calls: Sequence[Activity],
    gates: CallGates,
    shares: CallShares,
    passed_on: Mapping[int, float] | None = None,
) -> tuple[OwnerExposed, ...]:
    """What the exposed time goes into, the largest first; its rows add up to all of it.
    ``passed_on`` is, by rank, what of its lateness others had made."""
    made_late = passed_on or {}
    sums: dict[OwnerKey, list[int]] = defaultdict(lambda: [0, 0, 0])
    for key, exposed_ns, alone_ns in _owned(calls, gates, shares):
        if exposed_ns:
            row = sums[key]
            row[0] += exposed_ns
            row[1] += alone_ns
            row[2] += 1
    total_ns = sum(row[0] for row in sums.values())
    made = [
        OwnerExposed(
            kind=kind, global_rank=rank, phase=phase, doubt=doubt, exposed_ns=exposed_ns,
            alone_ns=alone_ns, n_calls=n_calls, share_ratio=exposed_ns / total_ns,
            passed_on_ratio=made_late.get(rank),
        )
        for (kind, rank, phase, doubt), (exposed_ns, alone_ns, n_calls) in sums.items()
    ]  # fmt: skip
    return tuple(sorted(made, key=lambda one: (-one.exposed_ns, one.kind, one.global_rank)))


def _owned(
    calls: Sequence[Activity], gates: CallGates, shares: CallShares
) -> Iterator[tuple[OwnerKey, int, int]]:
    columns = (
        gates.late_rank, gates.late_row, gates.doubt, shares.wait_ns, shares.alone_ns,
        shares.move_ns,
    )  # fmt: skip
    for rank, row, doubt, wait_ns, alone_ns, move_ns in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        if rank >= 0:
            phase = calls[row].phase if row >= 0 else ""
            yield (OwnerKind.LATE, rank, phase, None), wait_ns, alone_ns
        elif doubt != KNOWN:
            yield (OwnerKind.UNKNOWN, -1, "", DOUBTS[doubt]), wait_ns, 0
        yield (OwnerKind.TRANSFER, -1, "", None), move_ns, 0


def parts(names: Iterable[str], shares: CallShares) -> tuple[PartExposed, ...]:
    """Exposed time by ``names``, one of each call; the largest first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, exposed_ns in zip(names, shares.exposed_ns.tolist(), strict=True):
        sums[name][0] += exposed_ns
        sums[name][1] += 1
    total_ns = sum(row[0] for row in sums.values())
    made = [
        PartExposed(
            name=name, exposed_ns=exposed_ns, n_calls=n_calls,
            share_ratio=exposed_ns / total_ns if total_ns else 0.0,
        )
        for name, (exposed_ns, n_calls) in sums.items()
    ]  # fmt: skip
    return tuple(sorted(made, key=lambda one: (-one.exposed_ns, one.name)))


def streams(activities: Iterable[Activity], found: Iterable[Exposure]) -> tuple[StreamExposed, ...]:
    """One for each rank and stream, over all steps; ascending."""
    hiding = {one.global_rank: one.hiding for one in found}
    spans: dict[tuple[int, int], list[Activity]] = defaultdict(list)
    for one in activities:
        if one.end_ns > one.start_ns > 0:
            spans[one.global_rank, one.stream].append(one)
    return tuple(
        _stream(rank, stream, own, hiding.get(rank, EMPTY))
        for (rank, stream), own in sorted(spans.items(), key=lambda item: item[0])
    )


def _stream(rank: int, stream: int, own: Sequence[Activity], hiding: np.ndarray) -> StreamExposed:
    def set_of(kind: ActivityKind | None) -> np.ndarray:
        rows = [(one.start_ns, one.end_ns) for one in own if kind in {None, one.kind}]
        return united(np.array(rows, np.int64).reshape(-1, 2))

    communication = set_of(ActivityKind.COMMUNICATION)
    return StreamExposed(
        global_rank=rank,
        stream=stream,
        n_intervals=len(set_of(None)),
        compute_ns=length_ns(set_of(ActivityKind.COMPUTE)),
        communication_ns=length_ns(communication),
        exposed_ns=length_ns(without(communication, hiding)),
    )
