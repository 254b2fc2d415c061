"""Bandwidth of a run's own records: what each communicator and pair moved, by op and size.

The time of a transfer counts from the last entry of its members to its end: waiting for a late
member is none of it. Ops whose end was only seen by a wait, of which only the call was seen, or
which were folded, are left out: their time is not that of the transfer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.matching import IS_ROOTED, Instances
from comminsight.model.bandwidth import BandwidthRow, bus_factor
from comminsight.model.topology import Communicator

LOW_PCT, HIGH_PCT = 5, 95
MIN_TRANSFER_NS = 1_000  # shorter ones measure the stamps


@dataclass(frozen=True, slots=True)
class Transfers:
    """Whole op instances with the time they moved; arrays ``(n,)``. ``row`` is one row of each in
    ``Instances.ops``, ``n_left_out`` the instances whose time is not that of a transfer."""

    row: np.ndarray
    transfer_ns: np.ndarray
    n_left_out: int


def transfers(found: Instances) -> Transfers:
    """The transfers of a window, from the last entry to the end. An op that ends for its members
    one by one (a broadcast) has ended with the last of them, any other with the first: its later
    ends are the members' own."""
    n, ops = found.n_instances, found.ops
    last_start = np.full(n, np.iinfo(np.int64).min)
    first_end = np.full(n, np.iinfo(np.int64).max)
    last_end = np.full(n, np.iinfo(np.int64).min)
    np.maximum.at(last_start, found.instance, found.start_ns)
    np.minimum.at(first_end, found.instance, found.end_ns)
    np.maximum.at(last_end, found.instance, found.end_ns)
    row = np.zeros(n, np.int64)
    row[found.instance[::-1]] = np.arange(ops.n_ops - 1, -1, -1)
    is_staggered = IS_ROOTED[ops.op[row]] | found.is_p2p
    transfer_ns = np.where(is_staggered, last_end, first_end) - last_start
    is_whole = (found.n_members == found.expected) & found.is_evidence & ~found.is_mismatched
    is_bound = ops.is_end_bound | ops.is_untimed | ops.is_folded
    bound = np.bincount(found.instance[is_bound], minlength=n) > 0
    good = is_whole & ~bound & (transfer_ns >= MIN_TRANSFER_NS) & (ops.size_bytes[row] > 0)
    kept = np.flatnonzero(good)
    return Transfers(row[kept], transfer_ns[kept], n - len(kept))


def bandwidth_rows(
    found: Instances,
    communicators: Sequence[Communicator],
    hosts: Mapping[int, str],
    *,
    steps: tuple[int, int] = (-1, -1),
) -> tuple[BandwidthRow, ...]:
    """One row per op, size and communicator or pair of the window; ``hosts`` by global rank.

    ``steps`` are the first and last step of the window. O(n log n) in the number of ops.
    """
    moved, ops = transfers(found), found.ops
    row = moved.row
    pair = np.where(found.is_p2p[found.instance[row]], _pair(ops.comm_rank, ops.peer)[row], 0)
    keys = np.stack([ops.op[row], ops.size_bytes[row], ops.comm_id[row], pair], axis=1)
    if not len(keys):
        return ()
    kinds, inverse = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    bounds = np.cumsum(np.bincount(inverse.ravel(), minlength=len(kinds)))[:-1]
    groups = np.split(order, bounds)
    return tuple(
        _row(kind.tolist(), moved.transfer_ns[rows], communicators, hosts, steps)
        for kind, rows in zip(kinds, groups, strict=True)
    )


def _pair(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """A number per unordered pair of comm ranks, above 0."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    numbers: np.ndarray = 1 + low + high * (1 << 24)
    return numbers


def _row(
    kind: list[int],
    transfer_ns: np.ndarray,
    communicators: Sequence[Communicator],
    hosts: Mapping[int, str],
    steps: tuple[int, int],
) -> BandwidthRow:
    op, size_bytes, comm_id, pair = kind
    communicator = communicators[comm_id]
    ranks = tuple(_members(communicator, pair))
    busbw_gbs = size_bytes / transfer_ns * bus_factor(op, len(ranks))
    low, middle, high = np.percentile(busbw_gbs, (LOW_PCT, 50, HIGH_PCT)).tolist()
    named = tuple(sorted({host for rank in ranks if (host := hosts.get(rank, ""))}))
    return BandwidthRow(
        op=op, size_bytes=size_bytes, busbw_gbs=middle, ranks=ranks, hosts=named,
        comm_label=communicator.label, n_ops=len(transfer_ns), low_gbs=low, high_gbs=high,
        first_step=steps[0], last_step=steps[1],
    )  # fmt: skip


def _members(communicator: Communicator, pair: int) -> Iterator[int]:
    if not pair:
        yield from communicator.members
        return
    high, low = divmod(pair - 1, 1 << 24)
    yield from sorted((communicator.members[low], communicator.members[high]))
