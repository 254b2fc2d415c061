"""Since when: the onset of a lasting shift in a series, with a stated false-alarm rate.

The split that separates the two sides best (largest rank-sum statistic) is compared with what
the same series gives in random order. Ranks, so that one spike is not a shift; a fixed sequence
of permutations, so that the answer is deterministic; and a permutation test, so that the
false-alarm rate holds for any distribution of independent values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from comminsight.model.splitmix import splitmix64

MIN_SIDE = 3  # observations each side of a split must have
BLOCK_CELLS = 1 << 20  # values permuted at once
MAX_CELLS, MIN_ORDERS = 20_000_000, 199  # long series are held against fewer orders


@dataclass(frozen=True, slots=True)
class Shift:
    """``onset`` is the position of the first shifted value; ``p_value`` the share of random
    orders that look at least as shifted; medians before and after, in the series' own unit."""

    onset: int
    before: float
    after: float
    p_value: float


def find_shift(
    series: np.ndarray, *, false_alarm_rate: float = 0.01, n_orders: int = 999
) -> Shift | None:
    """The most likely shift, or None when the series is short or its order could be chance.

    On ``n`` independent, equally distributed values a shift is reported with at most
    ``false_alarm_rate``. Cost O(n_orders * n log n), bounded by ``MAX_CELLS``;
    memory does not grow with the orders.
    """
    values = np.asarray(series, float)
    if len(values) < 2 * MIN_SIDE:
        return None
    ranks = _mid_ranks(values)
    scores = _scores(ranks[None, :])[0]
    onset = int(np.argmax(scores)) + MIN_SIDE
    limit = scores.max() - 1e-9
    per_block = max(1, BLOCK_CELLS // len(values))
    n_orders = min(n_orders, max(MIN_ORDERS, MAX_CELLS // len(values)))
    n_as_large = 0
    for first in range(0, n_orders, per_block):
        numbers = _sequence(first, min(per_block, n_orders - first), len(values))
        orders = np.argsort(numbers, axis=1, kind="stable")
        n_as_large += int(np.count_nonzero(_scores(ranks[orders]).max(axis=1) >= limit))
    p_value = (1 + n_as_large) / (1 + n_orders)
    if p_value > false_alarm_rate:
        return None
    return Shift(onset, float(np.median(values[:onset])), float(np.median(values[onset:])), p_value)


def _mid_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, equal values sharing their mean rank, centred on 0."""
    ordered = np.sort(values)
    low = np.searchsorted(ordered, values, "left")
    high = np.searchsorted(ordered, values, "right")
    ranks: np.ndarray = (low + high - 1) / 2 - (len(values) - 1) / 2
    return ranks


def _scores(ranks: np.ndarray) -> np.ndarray:
    """Standardised |rank sum| of every split, ``(n_series, n_splits)``."""
    n = ranks.shape[1]
    left = np.arange(MIN_SIDE, n - MIN_SIDE + 1)
    sums = np.cumsum(ranks, axis=1)[:, left - 1]
    scores: np.ndarray = np.abs(sums) / np.sqrt(left * (n - left))
    return scores


def _sequence(first: int, n_orders: int, n: int) -> np.ndarray:
    """Orders ``first`` and later of reproducible well-mixed numbers."""
    counter = np.arange(first * n + 1, (first + n_orders) * n + 1, dtype=np.uint64)
    return splitmix64(counter).reshape(n_orders, n)
