"""Numbers of a benchmark: bandwidths, knee and plateau, and a permutation test of two samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from comminsight.model.bench import BenchRow, Shape

N_PERMUTATIONS = 9999
WAITING_SHARE = 0.5
KNEE_RATIO = 2.0  # times the shortest time
PLATEAU_RATIO = 0.9  # of the greatest bandwidth


def bus_factor(collective: str, n_ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests define it."""
    if collective in {"all_reduce", "reduce_scatter+all_gather"}:
        return 2 * (n_ranks - 1) / n_ranks
    if collective in {"all_gather", "reduce_scatter", "all_to_all"}:
        return (n_ranks - 1) / n_ranks
    return 1.0


def bench_row(
    collective: str, payload_bytes: int, rank_ms: Sequence[Sequence[float]],
    waited_ms: Sequence[Sequence[float]] = (),
) -> BenchRow:  # fmt: skip
    """The row of ``rank_ms`` and ``waited_ms`` [rank][repeat]; repeats that a rank lacks are left
    out.

    algbw is size over median time; the size of all_gather is that of its whole result.
    """
    slowest = [max(times) for times in zip(*rank_ms, strict=False)]
    median_ms = statistics.median(slowest)
    gbps = payload_bytes / (median_ms * 1e6)
    algbw = gbps * (len(rank_ms) if collective == "all_gather" else 1)
    return BenchRow(
        collective=collective, payload_bytes_per_rank=payload_bytes,
        median_max_rank_ms=median_ms,
        p95_max_rank_ms=sorted(slowest)[math.ceil(0.95 * len(slowest)) - 1],
        effective_payload_gbps=gbps, algbw_gbps=algbw,
        busbw_gbps=algbw * bus_factor(collective, len(rank_ms)),
        max_rank_ms=tuple(slowest), rank_ms=tuple(tuple(times) for times in rank_ms),
        waiting_repeats=_waiting_repeats(rank_ms, waited_ms),
    )  # fmt: skip


def _waiting_repeats(
    rank_ms: Sequence[Sequence[float]], waited_ms: Sequence[Sequence[float]]
) -> int:
    """Repeats of which a rank stood in line for a core for ``WAITING_SHARE`` or more; -1 where a
    rank does not tell."""
    if not waited_ms or any(one < 0 for rank in waited_ms for one in rank):
        return -1
    shares = [
        [waited >= WAITING_SHARE * took for took, waited in zip(*rank, strict=False)]
        for rank in zip(rank_ms, waited_ms, strict=True)
    ]
    return sum(map(any, zip(*shares, strict=False)))


def shape_of(rows: Sequence[BenchRow]) -> Shape:
    """Knee and plateau of one collective's rows; None where the payloads do not show it, and where
    ranks waited for a core."""
    ordered = sorted(rows, key=lambda row: row.payload_bytes_per_rank)
    if any(row.is_disturbed for row in ordered):
        return Shape(
            collective=ordered[0].collective, latency_knee_bytes=None, plateau_from_bytes=None,
            plateau_gbps=None,
        )  # fmt: skip
    best = max(row.effective_payload_gbps for row in ordered)
    near = [row for row in ordered if row.effective_payload_gbps >= PLATEAU_RATIO * best]
    is_flat = len(near) > 1 and near == ordered[-len(near) :]
    return Shape(
        collective=ordered[0].collective,
        latency_knee_bytes=_knee(ordered),
        plateau_from_bytes=near[0].payload_bytes_per_rank if is_flat else None,
        plateau_gbps=best if is_flat else None,
    )


def _knee(ordered: Sequence[BenchRow]) -> int | None:
    """The payload from which on times are ``KNEE_RATIO`` of the shortest. None where they are so
    nowhere, at the smallest payload already, or not at all greater ones."""
    floor_ms = min(row.median_max_rank_ms for row in ordered)
    slow = [row for row in ordered if row.median_max_rank_ms >= KNEE_RATIO * floor_ms]
    is_tail = 0 < len(slow) < len(ordered) and slow == list(ordered[-len(slow) :])
    return slow[0].payload_bytes_per_rank if is_tail else None


def permutation_p(first: Sequence[float], second: Sequence[float], *, seed: int = 0) -> float:
    """Two-sided p of the difference of medians when both samples are alike: never 0.

    Holds when repeats are exchangeable; a machine that drifts between the launches breaks that.
    """
    pooled = np.array([*first, *second])
    shuffled = np.random.default_rng(seed).permuted(np.tile(pooled, (N_PERMUTATIONS, 1)), axis=1)
    n = len(first)
    found = np.abs(np.median(shuffled[:, n:], axis=1) - np.median(shuffled[:, :n], axis=1))
    seen = abs(statistics.median(second) - statistics.median(first))
    return float((1 + np.count_nonzero(found >= seen)) / (N_PERMUTATIONS + 1))
