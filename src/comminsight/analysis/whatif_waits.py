"""Which of the ends that a program seems to wait for it really waits for.

``inference`` takes every end that no observation contradicts. An op that overlaps with computing
may be over before a later one starts every time, and still nobody waited for it; then the work
after it seems to be as short as the op was late. What waits for an end moves with it, one to one,
from step to step; what does not, stays where it is. So an end counts unless the starts clearly do
not follow.
"""

from __future__ import annotations

import numpy as np

from comminsight.analysis.program import MAX_LAG

LEAST_SLOPE = 0.5  # between 1, the start follows the end, and 0, it does not care
OUTLIER = 4.0  # times the median deviation
MIN_WEIGHT_RATIO = 0.1  # of the variation of the rank with the most; less says nothing


def steady_waits(
    start_ns: np.ndarray, end_ns: np.ndarray, entry_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(bits of the ends waited for ``(n_ops,)``, work) of runs ``(n_steps, n_ranks, n_ops)``;
    ``entry_ns (n_steps, n_ranks)`` is when each was free for its first op."""
    base_ns = np.empty_like(start_ns)
    base_ns[:, :, 0] = entry_ns
    base_ns[:, :, 1:] = start_ns[:, :, :-1]
    n_ops = start_ns.shape[2]
    lags = np.zeros(n_ops, np.int64)
    for lag in range(1, min(MAX_LAG, n_ops - 1) + 1):
        ended_ns, begun_ns = end_ns[:, :, :-lag], start_ns[:, :, lag:]
        without_ns = base_ns[:, :, lag:]
        with_ns = np.maximum(without_ns, ended_ns)
        is_wait = (ended_ns <= begun_ns).all(axis=(0, 1))
        is_wait &= ~_is_unmoved(begun_ns - without_ns, with_ns - without_ns)
        lags[lag:] |= is_wait.astype(np.int64) << (lag - 1)
        later = np.flatnonzero(is_wait)
        base_ns[:, :, later + lag] = with_ns[:, :, later]
    lags[1:] &= ~(lags[:-1] << 1)  # implied by the previous start
    return lags, start_ns - base_ns


def _is_unmoved(taken_ns: np.ndarray, waited_ns: np.ndarray) -> np.ndarray:
    """Per place: do most ranks clearly not take longer when they would have waited longer?

    A rank that is itself late some of the time takes longer while it waits less, whatever it waits
    for: each rank is asked for itself, and the few cannot outvote the others. Single large delays
    may hide what all other steps say, and may be all there is to see: both are looked at.
    """
    y, x = taken_ns - taken_ns.mean(axis=0), waited_ns - waited_ns.mean(axis=0)
    unmoved: np.ndarray = _most_unmoved(y, x) | _most_unmoved(_calm(taken_ns), _calm(waited_ns))
    return unmoved


def _most_unmoved(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    square = (x * x).sum(axis=0)
    slope = (x * y).sum(axis=0) / np.maximum(square, 1.0)
    n = max(len(y) - 2, 1)
    error = np.sqrt(((y - slope * x) ** 2).sum(axis=0) / n / np.maximum(square, 1.0))
    is_asked = square > MIN_WEIGHT_RATIO * square.max(axis=0)
    is_unmoved = is_asked & (slope + error < LEAST_SLOPE)
    most: np.ndarray = 2 * is_unmoved.sum(axis=0) > is_asked.sum(axis=0)
    return most


def _calm(values_ns: np.ndarray) -> np.ndarray:
    """About the middle of each rank, outliers drawn in."""
    centred = values_ns - np.median(values_ns, axis=0)
    limit = OUTLIER * np.median(np.abs(centred), axis=0)
    calm: np.ndarray = np.clip(centred, -limit, limit)
    return calm
