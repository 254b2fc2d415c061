"""Bandwidth of a run's own records: what each communicator and pair moved, by op and size.

The time of a transfer counts from the last entry of its members, or from the end of the op before
it in the communicator if that is later, to its end: neither waiting for a late member nor standing
in a queue is any of it. Ops whose end was only seen by a wait, of which only the call was seen, or
which were folded, are left out: their time is not that of the transfer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np

from comminsight.analysis.alignment import AlignedStep
from comminsight.analysis.matching import IS_ROOTED, Instances
from comminsight.analysis.measures import Clock, RunSources, run_sources, step_instances
from comminsight.model.bandwidth import BandwidthRow, bus_factor
from comminsight.model.ops import Algorithm, Protocol, TimingSource
from comminsight.model.topology import Communicator
from comminsight.model.trace import RunTrace

LOW_PCT, HIGH_PCT = 5, 95
MIN_TRANSFER_NS = 1_000  # shorter ones measure the stamps
MAX_WINDOWS = 12
STEPS_PER_WINDOW = 5
_PAIR_BASE = 1 << 24
_LOWEST = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Manner:
    """How each row of a window's ops ran; arrays ``(n_ops,)``. ``is_end_seen`` is false where the
    end is only known from the return of a wait; ``algo`` and ``proto`` are 0 where unknown."""

    is_end_seen: np.ndarray
    algo: np.ndarray
    proto: np.ndarray


@dataclass(frozen=True, slots=True)
class Transfers:
    """Whole op instances with the time that they moved; arrays ``(n,)``. ``pair`` numbers the two
    members of a P2P op, 0 for a collective; ``n_left_out`` are the instances without such a time.
    """

    op: np.ndarray
    size_bytes: np.ndarray
    comm_id: np.ndarray
    pair: np.ndarray
    algo: np.ndarray
    proto: np.ndarray
    transfer_ns: np.ndarray
    n_left_out: int = 0


def transfers(found: Instances, manner: Manner) -> Transfers:
    """The transfers of a window; ``manner`` per row of ``found.ops``. An op that ends for its
    members one by one (a broadcast) has ended with the last of them, any other with the first:
    later ends are the members' own."""
    n, ops = found.n_instances, found.ops
    row = np.zeros(n, np.int64)
    row[found.instance[::-1]] = np.arange(ops.n_ops - 1, -1, -1)
    begin_ns, end_ns = _last_start_ns(found), _ends_ns(found, row)
    transfer_ns = end_ns - np.maximum(begin_ns, _queued_until_ns(found, row, end_ns))
    is_whole = (found.n_members == found.expected) & found.is_evidence & ~found.is_mismatched
    is_bound = ~manner.is_end_seen | ops.is_untimed | ops.is_folded
    bound = np.bincount(found.instance[is_bound], minlength=n) > 0
    good = is_whole & ~bound & (transfer_ns >= MIN_TRANSFER_NS) & (ops.size_bytes[row] > 0)
    kept = row[good]
    return Transfers(
        op=ops.op[kept],
        size_bytes=ops.size_bytes[kept],
        comm_id=ops.comm_id[kept],
        pair=np.where(found.is_p2p[good], _pair(ops.comm_rank[kept], ops.peer[kept]), 0),
        algo=manner.algo[kept],
        proto=manner.proto[kept],
        transfer_ns=transfer_ns[good],
        n_left_out=n - len(kept),
    )


def _last_start_ns(found: Instances) -> np.ndarray:
    latest = np.full(found.n_instances, _LOWEST)
    np.maximum.at(latest, found.instance, found.start_ns)
    return latest


def _ends_ns(found: Instances, row: np.ndarray) -> np.ndarray:
    """When each instance was over: by its first end, where ops end one by one by its last."""
    first = np.full(found.n_instances, np.iinfo(np.int64).max)
    last = np.full(found.n_instances, _LOWEST)
    np.minimum.at(first, found.instance, found.end_ns)
    np.maximum.at(last, found.instance, found.end_ns)
    ends: np.ndarray = np.where(IS_ROOTED[found.ops.op[row]] | found.is_p2p, last, first)
    return ends


def _queued_until_ns(found: Instances, row: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """The end of the collective before each one in its communicator: they run one by one, and
    instances are numbered in that order."""
    comm_id = found.ops.comm_id[row]
    before = np.full(found.n_instances, _LOWEST)
    follows = (comm_id[1:] == comm_id[:-1]) & ~found.is_p2p[1:] & ~found.is_p2p[:-1]
    before[1:][follows] = end_ns[:-1][follows]
    return before


def _pair(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """A number per unordered pair of comm ranks, above 0."""
    numbers: np.ndarray = 1 + np.minimum(one, other) + np.maximum(one, other) * _PAIR_BASE
    return numbers


def run_bandwidth(
    trace: RunTrace, aligned_steps: Sequence[AlignedStep], *, clock: Clock = "aligned"
) -> tuple[BandwidthRow, ...]:
    """Rows of the whole run, by op, size, communicator or pair, and window of steps: at most 12
    windows of at least 5 steps. O(n log n) in the number of ops, one step in memory at a time."""
    run = run_sources(trace, clock)
    hosts = {rank.global_rank: rank.session.host for rank in trace.ranks}
    rows: list[BandwidthRow] = []
    for window in _windows(aligned_steps):
        moved = [_transfers_of(run, step) for step in window]
        steps = window[0].step, window[-1].step
        rows += bandwidth_rows(moved, trace.communicators, hosts, steps=steps)
    return tuple(rows)


def _transfers_of(run: RunSources, step: AlignedStep) -> Transfers:
    found = step_instances(run, step)[0]
    return transfers(found, _manner(run, step, found))


def _manner(run: RunSources, step: AlignedStep, found: Instances) -> Manner:
    ops, n = found.ops, found.ops.n_ops
    made = Manner(np.zeros(n, bool), np.zeros(n, np.int64), np.zeros(n, np.int64))
    edges = np.flatnonzero(np.diff(ops.rank, prepend=-1, append=-1)).tolist()
    for first, last in pairwise(edges):
        rank = run.global_ranks[int(ops.rank[first])]
        source, rows = run.sessions[step.members[rank].session_id].trace.ops, ops.row[first:last]
        made.is_end_seen[first:last] = source["timing_source"][rows] != TimingSource.HOST_WAIT
        made.algo[first:last] = source["algo"][rows]
        made.proto[first:last] = source["proto"][rows]
    return made


def _windows(steps: Sequence[AlignedStep]) -> Iterator[Sequence[AlignedStep]]:
    n_windows = max(1, min(MAX_WINDOWS, len(steps) // STEPS_PER_WINDOW))
    edges = np.linspace(0, len(steps), n_windows + 1).astype(int).tolist()
    for first, last in pairwise(edges):
        if last > first:
            yield steps[first:last]


def bandwidth_rows(
    moved: Sequence[Transfers],
    communicators: Sequence[Communicator],
    hosts: Mapping[int, str],
    *,
    steps: tuple[int, int] = (-1, -1),
) -> tuple[BandwidthRow, ...]:
    """One row per op, size, communicator or pair, algorithm and protocol; ``hosts`` by global rank,
    ``steps`` the first and the last one."""
    names = ("op", "size_bytes", "comm_id", "pair", "algo", "proto")
    keys = np.stack(
        [np.concatenate([getattr(one, name) for one in moved]) for name in names], axis=1
    )
    if not len(keys):
        return ()
    transfer_ns = np.concatenate([one.transfer_ns for one in moved])
    kinds, inverse = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    bounds = np.cumsum(np.bincount(inverse.ravel(), minlength=len(kinds)))[:-1]
    return tuple(
        _row(kind.tolist(), transfer_ns[rows], communicators, hosts, steps)
        for kind, rows in zip(kinds, np.split(order, bounds), strict=True)
    )


def _row(
    kind: list[int],
    transfer_ns: np.ndarray,
    communicators: Sequence[Communicator],
    hosts: Mapping[int, str],
    steps: tuple[int, int],
) -> BandwidthRow:
    op, size_bytes, comm_id, pair, algo, proto = kind
    communicator = communicators[comm_id]
    ranks = _members(communicator, pair)
    busbw_gbs = size_bytes / transfer_ns * bus_factor(op, len(ranks))
    low, middle, high = np.percentile(busbw_gbs, (LOW_PCT, 50, HIGH_PCT)).tolist()
    named = tuple(sorted({host for rank in ranks if (host := hosts.get(rank, ""))}))
    return BandwidthRow(
        op=op, size_bytes=size_bytes, busbw_gbs=middle, ranks=ranks, hosts=named,
        algorithm=_name(Algorithm, algo), protocol=_name(Protocol, proto),
        comm_label=communicator.label, n_ops=len(transfer_ns), low_gbs=low, high_gbs=high,
        first_step=steps[0], last_step=steps[1],
    )  # fmt: skip


def _name(kind: type[IntEnum], value: int) -> str:
    """The name of a value, "" where it is unknown."""
    known = {member.value: member.name for member in kind}
    return known.get(value, "") if value else ""


def _members(communicator: Communicator, pair: int) -> tuple[int, ...]:
    if not pair:
        return communicator.members
    high, low = divmod(pair - 1, _PAIR_BASE)
    return tuple(sorted((communicator.members[low], communicator.members[high])))
