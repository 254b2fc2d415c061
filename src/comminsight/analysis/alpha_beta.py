"""Startup and rate of transfers: ``time = startup + bytes / rate``, fitted so that strays do not
pull it.

The startup and the slope minimise the sum of |relative error| (weights 1/time, by iteratively
reweighted least squares), since a microsecond matters for a small message and not for a large one.
Intervals come from resampling with a fixed sequence, so that the same input gives the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from comminsight.model.splitmix import splitmix64

MIN_SIZES = 3
N_ROUNDS = 30
N_RESAMPLES = 200
INTERVAL_PCT = (2.5, 97.5)
SMALLEST_ERROR = 1e-4  # relative: below it a residual weighs no more


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """``latency_ns`` (alpha) and ``rate_gbs`` (1/beta) with their 95 % intervals. ``rate_gbs`` is
    infinite where times do not grow with the size."""

    latency_ns: float
    rate_gbs: float
    latency_low_ns: float
    latency_high_ns: float
    rate_low_gbs: float
    rate_high_gbs: float

    def time_ns(self, size_bytes: float) -> float:
        """What a transfer of this size takes."""
        return self.latency_ns + size_bytes / self.rate_gbs

    def latency_ratio(self, size_bytes: float) -> float:
        """The share of the startup in the time of a transfer of this size."""
        return self.latency_ns / max(self.time_ns(size_bytes), 1e-9)


def fit_alpha_beta(size_bytes: np.ndarray, time_ns: np.ndarray) -> AlphaBeta | None:
    """The fit over transfers ``(n,)``; None with fewer than three sizes. Negative values, which
    no transfer has, read as none."""
    sizes, times = np.asarray(size_bytes, float), np.asarray(time_ns, float)
    usable = (times > 0) & np.isfinite(times) & np.isfinite(sizes)
    sizes, times = sizes[usable], times[usable]
    if len(np.unique(sizes)) < MIN_SIZES:
        return None
    latency, slope = _fit(sizes, times)
    draws = _resampled(sizes, times)
    low, high = np.percentile(draws, INTERVAL_PCT, axis=0)
    return AlphaBeta(
        latency, _rate(slope), float(low[0]), float(high[0]), _rate(high[1]), _rate(low[1])
    )


def has_drifted(before: AlphaBeta, after: AlphaBeta) -> tuple[bool, bool]:
    """Whether the startup and the rate became worse: their intervals do not meet."""
    return (
        after.latency_low_ns > before.latency_high_ns,
        after.rate_high_gbs < before.rate_low_gbs,
    )


def _rate(slope: float) -> float:
    return 1.0 / float(slope) if slope > 0 else float("inf")


def _fit(sizes: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    """(startup, ns per byte), both at least 0."""
    columns = np.stack([np.ones(len(sizes)), sizes], axis=1) / times[:, None]
    target = np.ones(len(sizes))
    weights = np.ones(len(sizes))
    found = np.zeros(2)
    for _ in range(N_ROUNDS):
        root = np.sqrt(weights)[:, None]
        found = np.linalg.lstsq(columns * root, target * root[:, 0], rcond=None)[0]
        weights = 1.0 / np.maximum(np.abs(target - columns @ found), SMALLEST_ERROR)
    if found[0] < 0:
        return 0.0, float(np.median(times / np.maximum(sizes, 1.0)))
    if found[1] < 0:
        return float(np.median(times)), 0.0
    return float(found[0]), float(found[1])


def _resampled(sizes: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Fits of samples drawn with replacement within each size, ``(n_resamples, 2)``."""
    n = len(sizes)
    numbers = splitmix64(np.arange(1, N_RESAMPLES * n + 1, dtype=np.uint64)).reshape(-1, n)
    order = np.argsort(sizes, kind="stable")
    sizes, times = sizes[order], times[order]
    _, first, count = np.unique(sizes, return_index=True, return_counts=True)
    begin, length = np.repeat(first, count), np.repeat(count, count).astype(np.uint64)
    picks = begin + (numbers % length).astype(np.int64)
    return np.array([_fit(sizes, times[pick]) for pick in picks])
