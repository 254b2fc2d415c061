"""Who made whom wait: the Straggler Index of the article, and one rank's pairs on demand.

Within one step, two members of the same op instance that start it at different instants give one
wait: the earlier waits for the later, from its own start to the other's. Waits of one pair in one
direction are united (no instant counts twice), the two directions of a pair cancel, different
pairs never do. With R(r) the pairs in which rank r comes out as the cause, and w(r, p) its net
wait in each:

    caused(r) = sum over p in R(r) of w(r, p) / |R(r)|        (0 when R(r) is empty)
    index(r)  = min(100, 100 * caused(r) / mean step duration of the valid ranks)

Source: CommInsight article, section 05 "Straggler".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.matching import Instances

MAX_INDEX_PCT = 100.0
_CHUNK_PAIRS = 1 << 21  # bounds the memory of one sweep, not its result


@dataclass(frozen=True, slots=True)
class PairSums:
    """Per rank ``(n_ranks,)``: net caused wait over its positive pairs, and their number."""

    caused_ns: np.ndarray
    n_pairs: np.ndarray

    @property
    def mean_caused_ns(self) -> np.ndarray:
        """Mean over the positive pairs, float64; 0 without one."""
        mean: np.ndarray = self.caused_ns / np.maximum(self.n_pairs, 1)
        return mean


# (rank, instance, start_ns, n_ranks) -> sums; columns are (n_ops,) int64, rank < n_ranks.
Sweep = Callable[[np.ndarray, np.ndarray, np.ndarray, int], PairSums]


@dataclass(frozen=True, slots=True)
class PairWait:
    """Net wait of a pair seen from one rank. ``parts`` splits the causing direction by op class:
    (comm_id, Op, waits of this class summed without uniting them), largest first."""

    rank: int
    net_ns: int
    parts: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class RankPairs:
    """Who made this rank wait (``culprits``) and whom it made wait (``victims``), worst first."""

    culprits: tuple[PairWait, ...]
    victims: tuple[PairWait, ...]


def wait_columns(found: Instances) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rank, instance, start_ns) of the rows whose members' clocks can be compared.

    Starts count from the earliest of their own clock: clocks that could not be aligned may be
    months apart, and no wait reaches from one to another.
    """
    rows = found.is_evidence[found.instance]
    start_ns = found.start_ns[rows]
    _, domain = np.unique(found.ops.clock_domain[rows], return_inverse=True)
    earliest_ns = np.full(domain.max(initial=-1) + 1, np.iinfo(np.int64).max)
    np.minimum.at(earliest_ns, domain, start_ns)
    return found.ops.rank[rows], found.instance[rows], start_ns - earliest_ns[domain]


def numpy_sweep(
    rank: np.ndarray, instance: np.ndarray, start_ns: np.ndarray, n_ranks: int
) -> PairSums:
    """Exact pair sums; the reference for native sweeps. Work O(sum of |instance|^2 / 2 · log)."""
    sums = PairSums(np.zeros(n_ranks, np.int64), np.zeros(n_ranks, np.int64))
    if len(rank) == 0:
        return sums
    order = np.lexsort((rank, instance))
    rank, instance, start_ns = rank[order], instance[order], start_ns[order] - start_ns.min()
    partners = np.searchsorted(instance, instance, "right") - np.arange(len(rank)) - 1
    by_rank = np.argsort(rank, kind="stable")
    for rows in _chunks(by_rank, rank, partners, n_ranks, int(start_ns.max()) + 1):
        first, second = _expand(rows, partners[rows])
        _add_nets(rank[first], rank[second], start_ns[first], start_ns[second], sums)
    return sums


def index_pct(sums: PairSums, mean_span_ns: float) -> np.ndarray:
    """Straggler Index per rank, ``(n_ranks,)`` float64 in 0-100."""
    if mean_span_ns <= 0:
        return np.zeros(len(sums.caused_ns))
    return np.minimum(MAX_INDEX_PCT, sums.mean_caused_ns / mean_span_ns * 100)


def waited_ns(
    rank: np.ndarray, instance: np.ndarray, start_ns: np.ndarray, n_ranks: int
) -> np.ndarray:
    """Union of each rank's waits for anyone, ``(n_ranks,)`` int64."""
    total = np.zeros(n_ranks, np.int64)
    if len(rank) == 0:
        return total
    last_ns = np.full(int(instance.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(last_ns, instance, start_ns)
    key, union = union_lengths(rank, start_ns, last_ns[instance])
    total[key] = union
    return total


def pairs_of(found: Instances, rank: int, *, top: int = 10) -> RankPairs:
    """The pairs of one rank (an index, as in ``found.ops.rank``), at most ``top`` of each kind.

    Cost O(members of the rank's own instances); no pair matrix is ever stored.
    """
    ranks, instance, start_ns = wait_columns(found)
    row_of = np.flatnonzero(found.is_evidence[found.instance])
    mine = np.flatnonzero(ranks == rank)
    if len(mine) == 0:
        return RankPairs((), ())
    own_start = np.full(found.n_instances, np.iinfo(np.int64).min)
    own_start[instance[mine[::-1]]] = start_ns[mine[::-1]]
    others = np.flatnonzero((own_start[instance] > np.iinfo(np.int64).min) & (ranks != rank))
    own_ns, other_ns = own_start[instance[others]], start_ns[others]
    is_culprit = other_ns > own_ns
    key, union = union_lengths(
        ranks[others] * 2 + is_culprit, np.minimum(own_ns, other_ns), np.maximum(own_ns, other_ns)
    )
    net = np.zeros((found.n_ranks, 2), np.int64)
    net[key // 2, key % 2] = union
    net_ns = net[:, 1] - net[:, 0]  # positive: the other one is the cause
    rows = row_of[others]

    def worst(sign: int) -> tuple[PairWait, ...]:
        partners = np.flatnonzero(sign * net_ns > 0)
        partners = partners[np.argsort(-sign * net_ns[partners], kind="stable")][:top]
        chosen = is_culprit if sign > 0 else other_ns < own_ns
        wait_ns = np.abs(other_ns - own_ns)
        return tuple(
            PairWait(
                int(partner),
                int(abs(net_ns[partner])),
                _parts(found, rows, wait_ns, chosen & (ranks[others] == partner)),
            )
            for partner in partners
        )

    return RankPairs(culprits=worst(1), victims=worst(-1))


def _parts(
    found: Instances, rows: np.ndarray, wait_ns: np.ndarray, chosen: np.ndarray
) -> tuple[tuple[int, int, int], ...]:
    """Waits of the chosen entries by (comm_id, op)."""
    comm_id, op = found.ops.comm_id[rows[chosen]], found.ops.op[rows[chosen]]
    keys, inverse = np.unique(comm_id * 256 + op, return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, inverse, wait_ns[chosen])
    order = np.argsort(-sums, kind="stable")
    return tuple((int(keys[i]) // 256, int(keys[i]) % 256, int(sums[i])) for i in order)


def _chunks(
    by_rank: np.ndarray, rank: np.ndarray, partners: np.ndarray, n_ranks: int, span_ns: int
) -> list[np.ndarray]:
    """Rows cut at rank boundaries so that a chunk's pairs and its sort keys stay bounded."""
    max_ranks = (1 << 62) // (span_ns * 2 * n_ranks)
    if max_ranks < 1:
        raise ValueError(f"starts span {span_ns} ns: not one step on one clock")
    bounds = np.searchsorted(rank[by_rank], np.arange(n_ranks + 1))
    load = np.concatenate(([0], np.cumsum(partners[by_rank])))[bounds]
    chunks, begin = [], 0
    for r in range(1, n_ranks + 1):
        is_full = r == n_ranks or load[r + 1] - load[begin] > _CHUNK_PAIRS
        if is_full or r - begin >= max_ranks:
            chunks.append(by_rank[bounds[begin] : bounds[r]])
            begin = r
    return chunks


def _expand(rows: np.ndarray, partners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every row repeated against each later row of its instance."""
    first = np.repeat(rows, partners)
    ends = np.cumsum(partners)
    nth = np.arange(len(first)) - np.repeat(ends - partners, partners)
    return first, first + 1 + nth


def _add_nets(
    low: np.ndarray, high: np.ndarray, low_ns: np.ndarray, high_ns: np.ndarray, sums: PairSums
) -> None:
    """Add the net of every pair (low rank, high rank) to the one that caused it."""
    unequal = np.flatnonzero((low_ns != high_ns) & (low != high))
    if len(unequal) == 0:
        return
    low, high, low_ns, high_ns = low[unequal], high[unequal], low_ns[unequal], high_ns[unequal]
    n_ranks, base = len(sums.caused_ns), int(low.min())
    is_high_late = high_ns > low_ns
    pair = (low - base) * n_ranks + high
    begin, end = np.minimum(low_ns, high_ns), np.maximum(low_ns, high_ns)
    key, union = union_lengths(pair * 2 + is_high_late, begin, end)
    signed = np.where(key & 1, union, -union)
    starts = np.flatnonzero(np.r_[True, key[1:] >> 1 != key[:-1] >> 1])
    net = np.add.reduceat(signed, starts)
    pair = key[starts] >> 1
    cause = np.where(net > 0, pair % n_ranks, pair // n_ranks + base)
    np.add.at(sums.caused_ns, cause, np.abs(net))
    np.add.at(sums.n_pairs, cause, net != 0)


def union_lengths(
    key: np.ndarray, begin_ns: np.ndarray, end_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted keys and, per key, the length of the union of its intervals."""
    if len(key) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    origin_ns = int(begin_ns.min())
    width = int(end_ns.max()) - origin_ns + 1
    offset = key * width - origin_ns  # every key gets a stretch of the line of its own
    begin, end = begin_ns + offset, end_ns + offset
    order = np.argsort(begin, kind="stable")
    key, begin, end = key[order], begin[order], end[order]
    reached = np.maximum.accumulate(end)
    begin[1:] = np.maximum(begin[1:], reached[:-1])
    fresh = np.maximum(end - begin, 0)
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    return key[starts], np.add.reduceat(fresh, starts)
