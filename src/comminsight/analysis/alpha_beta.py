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
MIN_REPEATS = 5  # of a size, for its own spread to be known
MIN_CROSSING_SHARE = 0.95
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
    sizes, times = _usable(size_bytes, time_ns)
    if len(np.unique(sizes)) < MIN_SIZES:
        return None
    latency, slope = _fits(sizes[None], times[None])[0].tolist()
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


@dataclass(frozen=True, slots=True)
class Crossover:
    """The size at which two models take the same time, with its 95 % interval; below it the first
    is faster where ``is_first_below``."""

    size_bytes: float
    low_bytes: float
    high_bytes: float
    is_first_below: bool


def crossover(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]
) -> Crossover | None:
    """Where two populations of (sizes, times) cross; None where either cannot be fitted, or less
    than 95 % of their resamples cross the same way: ``(a2 - a1) / (b1 - b2)`` of startups a and
    slopes b."""
    usable = [_usable(*one) for one in (first, second)]
    if any(len(np.unique(sizes)) < MIN_SIZES for sizes, _ in usable):
        return None
    whole = [_fits(sizes[None], times[None]) for sizes, times in usable]
    draws = [_resampled(sizes, times) for sizes, times in usable]
    found = _crossing(whole[0], whole[1])[0]
    many = _crossing(draws[0], draws[1])
    is_first_below = bool(whole[0][0, 0] < whole[1][0, 0])
    is_alike = (draws[0][:, 0] < draws[1][:, 0]) == is_first_below
    good = many[is_alike & np.isfinite(many)]
    if not np.isfinite(found) or len(good) < MIN_CROSSING_SHARE * len(many):
        return None
    low, high = np.percentile(good, INTERVAL_PCT)
    return Crossover(float(found), float(low), float(high), is_first_below)


def observed_ratios(fit: AlphaBeta, size_bytes: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
    """Measured over predicted time of each transfer; 1 where the model says it right."""
    ratios: np.ndarray = np.asarray(time_ns, float) / (
        fit.latency_ns + np.asarray(size_bytes, float) / fit.rate_gbs
    )
    return ratios


def _crossing(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Sizes ``(n,)`` at which models ``(n, 2)`` meet; NaN where one is faster at all sizes."""
    apart, steeper = other[:, 0] - one[:, 0], one[:, 1] - other[:, 1]
    does = apart * steeper > 0
    sizes: np.ndarray = np.where(does, apart / np.where(does, steeper, 1.0), np.nan)
    return sizes


def _usable(size_bytes: np.ndarray, time_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sizes, times = np.asarray(size_bytes, float), np.asarray(time_ns, float)
    good = (times > 0) & np.isfinite(times) & np.isfinite(sizes)
    return sizes[good], times[good]


def _fits(sizes: np.ndarray, times: np.ndarray) -> np.ndarray:
    """(startup, ns per byte) of each population ``(n_fits, n)``: ``(n_fits, 2)``, none below 0."""
    ones, slopes = 1.0 / times, sizes / times
    scale = 1.0 / np.sqrt((ones**2).mean()), 1.0 / max(np.sqrt((slopes**2).mean()), 1e-300)
    ones, slopes = ones * scale[0], slopes * scale[1]
    weights, found = np.ones_like(times), np.zeros((len(times), 2))
    for _ in range(N_ROUNDS):
        s00, s11 = (weights * ones**2).sum(1), (weights * slopes**2).sum(1)
        s01, t0 = (weights * ones * slopes).sum(1), (weights * ones).sum(1)
        t1 = (weights * slopes).sum(1)
        area = np.maximum(s00 * s11 - s01**2, 1e-300)
        found = np.stack([s11 * t0 - s01 * t1, s00 * t1 - s01 * t0], axis=1) / area[:, None]
        error = np.abs(1.0 - ones * found[:, :1] - slopes * found[:, 1:])
        weights = 1.0 / np.maximum(error, SMALLEST_ERROR)
    found *= scale
    no_startup, no_slope = found[:, 0] < 0, found[:, 1] < 0
    found[no_startup, 0] = 0.0
    found[no_startup, 1] = np.median(times / np.maximum(sizes, 1.0), axis=1)[no_startup]
    found[no_slope, 0] = np.median(times, axis=1)[no_slope]
    found[no_slope, 1] = 0.0
    return found


def _resampled(sizes: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Fits of resamples, ``(n_resamples, 2)``: drawn with replacement within each size where it was
    measured often enough, else of the model with the deviations of all sizes in another order."""
    n = len(sizes)
    numbers = splitmix64(np.arange(1, N_RESAMPLES * n + 1, dtype=np.uint64)).reshape(-1, n)
    order = np.argsort(sizes, kind="stable")
    sizes, times = sizes[order], times[order]
    _, first, count = np.unique(sizes, return_index=True, return_counts=True)
    drawn = np.broadcast_to(sizes, (N_RESAMPLES, n))
    if np.median(count) >= MIN_REPEATS:
        begin, length = np.repeat(first, count), np.repeat(count, count).astype(np.uint64)
        return _fits(drawn, times[begin + (numbers % length).astype(np.int64)])
    startup, slope = _fits(sizes[None], times[None])[0]
    model = np.maximum(startup + slope * sizes, 1e-9)
    # the fit took two degrees of freedom out of the deviations
    deviations = np.log(times / model) * np.sqrt(n / max(n - 2, 1))
    return _fits(drawn, model * np.exp(deviations[(numbers % np.uint64(n)).astype(np.int64)]))
