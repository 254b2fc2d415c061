"""One clock for the run: offsets between nodes from the ends of matched collectives.

This is the only place that turns ``LocalNs`` into ``AlignedNs``. Sessions of one boot id share
CLOCK_MONOTONIC exactly. Between nodes, a collective in which every member depends on every other
(all-reduce, all-gather, reduce-scatter, all-to-all, barrier) gives two facts: its ends are close
together, whose median is the estimate, and no member's end may precede another member's begin,
which bounds the offset from both sides and clamps the estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.drift_line import MIN_DRIFT_OPS, drift_line
from comminsight.model.event import UNBOUNDED_NS
from comminsight.model.ops import Op, OpFlag, RecordKind, TimingSource
from comminsight.model.topology import SessionIdentity
from comminsight.model.trace import ClockOffsets, RankTrace
from comminsight.model.units import AlignedNs, LocalNs

# Every member of these depends on every other; a broadcast root or a sender may run ahead.
SYNCHRONISING_OPS = (
    Op.ALL_REDUCE,
    Op.ALL_GATHER,
    Op.REDUCE_SCATTER,
    Op.ALL_TO_ALL,
    Op.BARRIER,
)


@dataclass(frozen=True, slots=True)
class OffsetInterval:
    """Offset of one node to another: ``low_ns <= offset_ns <= high_ns``, from ``n_samples`` ends.

    Where no offset satisfies causality (drift, a clock step), the interval is the violated band and
    the estimate its middle. Where one clock is faster it holds the offsets of all of the run.
    """

    offset_ns: int
    low_ns: int
    high_ns: int
    n_samples: int

    @property
    def error_ns(self) -> int:
        """Largest distance from the estimate to an end of the interval."""
        return max(self.high_ns - self.offset_ns, self.offset_ns - self.low_ns)


def to_aligned(local_ns: LocalNs, boot_id: str, clocks: ClockOffsets) -> AlignedNs:
    """The instant on the run's clock; an unaligned node keeps its own clock (offset 0)."""
    return AlignedNs(local_ns + clocks.offset_ns.get(boot_id, 0))


def align_rows(local_ns: np.ndarray, offset_ns: np.ndarray) -> np.ndarray:
    """Column form of ``to_aligned`` with an offset per row; 0 (unknown) stays 0."""
    if not offset_ns.any():
        return local_ns
    return np.where(local_ns == 0, 0, local_ns + offset_ns)


def wall_clocks(sessions: Sequence[SessionIdentity]) -> ClockOffsets:
    """Offsets by the nodes' wall clocks, relative to the first node: what "raw" time means.

    One (mono, real) pair per boot id, that of its earliest session. How far the wall clocks are
    apart is unknown, so no error is stated (``error_ns`` 0 would claim too much: it is absent).
    """
    wall: dict[str, tuple[int, int]] = {}
    for session in sessions:
        pair = (session.created_mono_ns, session.created_real_ns - session.created_mono_ns)
        if session.boot_id not in wall or pair < wall[session.boot_id]:
            wall[session.boot_id] = pair
    reference_ns = next(iter(wall.values()), (0, 0))[1]
    return ClockOffsets(offset_ns={boot: pair[1] - reference_ns for boot, pair in wall.items()})


def stamp_error_ns(ranks: Sequence[RankTrace]) -> int:
    """By how much the starts of two ranks may be apart though they are at once: twice the typical
    bound of GPU stamps mapped to their host, of the rank where it is widest; 0 without such stamps.

    Stamps without any known bound (NCCL before 2.28 tells nothing before a launch) are left out.
    """
    errors = []
    for rank in ranks:
        is_mapped = rank.ops["timing_source"] == TimingSource.GPU
        is_mapped &= rank.ops["clock_error_ns"] < UNBOUNDED_NS
        own = rank.ops["clock_error_ns"][is_mapped]
        errors.append(int(np.median(own)) if len(own) else 0)
    return 2 * max(errors, default=0)


def apart_at_most_ns(ranks: Sequence[RankTrace], clocks: ClockOffsets) -> int:
    """By how much two stamps of ``ranks`` may be apart though they are at once: what the clocks of
    the two least known nodes leave open together, and ``stamp_error_ns``. ``UNBOUNDED_NS`` where
    nothing joins a node to the others."""
    boots = {rank.session.boot_id for rank in ranks}
    if len(boots) > 1 and not boots <= clocks.error_ns.keys():
        return UNBOUNDED_NS
    widest = sorted((clocks.error_ns.get(boot, 0) for boot in boots), reverse=True)
    return min(sum(widest[:2]) + stamp_error_ns(ranks), UNBOUNDED_NS)


def estimate_clocks(ranks: Sequence[RankTrace]) -> ClockOffsets:
    """Offsets of every boot id that collectives connect to the first one, with uncertainty.

    Nodes are joined along a breadth-first tree from the first boot id; errors add up along it. A
    boot id that no synchronising collective connects is left out.
    """
    boots = list(dict.fromkeys(rank.session.boot_id for rank in ranks))
    if len(boots) <= 1:
        known = dict.fromkeys(boots, 0)
        return ClockOffsets(known, dict(known))
    return joined_clocks(
        {boot: node_ends([r for r in ranks if r.session.boot_id == boot]) for boot in boots}
    )


def joined_clocks(ends: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> ClockOffsets:
    """Offsets of every clock that shared instances connect to the first one; ``ends`` holds keys
    and spans of each, as ``offset_between`` takes them."""
    boots = list(ends)
    offset_ns, error_ns = dict.fromkeys(boots[:1], 0), dict.fromkeys(boots[:1], 0)
    frontier = boots[:1]
    while frontier:
        known = frontier.pop(0)
        for boot in boots:
            if boot in offset_ns:
                continue
            interval = offset_between(*ends[known], *ends[boot])
            if interval is not None:
                offset_ns[boot] = offset_ns[known] + interval.offset_ns
                error_ns[boot] = error_ns[known] + interval.error_ns
                frontier.append(boot)
    return ClockOffsets(offset_ns=offset_ns, error_ns=error_ns)


def offset_between(
    keys_a: np.ndarray, spans_a: np.ndarray, keys_b: np.ndarray, spans_b: np.ndarray
) -> OffsetInterval | None:
    """``time_a = time_b + offset``; None when the nodes share no instance.

    ``keys`` are sorted unique instance keys ``(n,)``; ``spans`` are ``(n, 3)`` local nanoseconds:
    latest begin, earliest end and latest end of the node's members.
    """
    _, in_a, in_b = np.intersect1d(keys_a, keys_b, assume_unique=True, return_indices=True)
    if len(in_a) == 0:
        return None
    begin_a, first_end_a, last_end_a = spans_a[in_a].T
    begin_b, first_end_b, last_end_b = spans_b[in_b].T
    # begin_b + x <= first_end_a and begin_a <= first_end_b + x bound the offset x.
    high_ns = int((first_end_a - begin_b).min())
    low_ns = int((begin_a - first_end_b).max())
    apart_ns = last_end_a - last_end_b
    estimate_ns = int(np.median(apart_ns))
    if low_ns > high_ns:
        low_ns, high_ns = high_ns, low_ns
        estimate_ns = (low_ns + high_ns) // 2
    if len(in_a) >= MIN_DRIFT_OPS and (line := drift_line(last_end_a, apart_ns)).is_clear:
        # no band of causality shows a drift that is less than what a collective leaves open
        low_ns = min(low_ns, line.least_ns - line.residual_ns)
        high_ns = max(high_ns, line.most_ns + line.residual_ns)
    offset_ns = min(max(estimate_ns, low_ns), high_ns)
    return OffsetInterval(offset_ns, low_ns, high_ns, len(in_a))


def node_ends(ranks: Sequence[RankTrace], *, every: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Sorted instance keys of one node, of every so manieth instance, and, per key, latest begin,
    earliest and latest end."""
    keys, begins, ends = [], [], []
    for trace in ranks:
        ops = trace.ops
        rows = np.flatnonzero(
            (ops["kind"] == RecordKind.COLLECTIVE)
            & np.isin(ops["op"], [int(op) for op in SYNCHRONISING_OPS])
            & (ops["end_ns"] > 0)
            & (ops["match_seq"] % every == 0)
        )
        comm_ids = trace.comm_ids_of(ops["comm_index"][rows])
        rows, comm_ids = rows[comm_ids >= 0], comm_ids[comm_ids >= 0]
        is_replayed = (ops["flags"][rows] & OpFlag.GRAPH) != 0
        channels = comm_ids << 1 | is_replayed
        keys.append((channels << 32) | ops["match_seq"][rows])
        begins.append(ops["start_ns"][rows])
        ends.append(ops["end_ns"][rows])
    if not keys:
        return np.empty(0, np.int64), np.empty((0, 3), np.int64)
    unique, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    spans = np.empty((len(unique), 3), np.int64)
    spans[:, 0], spans[:, 1], spans[:, 2] = np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0
    np.maximum.at(spans[:, 0], inverse, np.concatenate(begins))
    np.minimum.at(spans[:, 1], inverse, np.concatenate(ends))
    np.maximum.at(spans[:, 2], inverse, np.concatenate(ends))
    return unique, spans
