"""Sets of time as sorted, disjoint, half-open intervals: arrays ``(n, 2)`` of int64 ns.

``length(a & b) + length(a - b) == length(a)`` holds exactly, for any two sets.
"""

from __future__ import annotations

import numpy as np

EMPTY = np.zeros((0, 2), np.int64)


def united(intervals: np.ndarray) -> np.ndarray:
    """The set that any intervals ``(n, 2)`` cover together; empty and reversed ones cover nothing.

    Intervals that touch become one.
    """
    kept = intervals[intervals[:, 1] > intervals[:, 0]]
    if not len(kept):
        return EMPTY
    kept = kept[np.argsort(kept[:, 0], kind="stable")]
    reach = np.maximum.accumulate(kept[:, 1])
    is_first = np.r_[True, kept[1:, 0] > reach[:-1]]
    is_last = np.r_[is_first[1:], True]
    return np.column_stack([kept[is_first, 0], reach[is_last]])


def common(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The set in both of two sets."""
    if not (len(first) and len(second)):
        return EMPTY
    low = np.searchsorted(second[:, 1], first[:, 0], "right")
    high = np.searchsorted(second[:, 0], first[:, 1], "left")
    counts = np.maximum(high - low, 0)
    row = np.repeat(np.arange(len(first)), counts)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    other = np.repeat(low, counts) + offset
    begin = np.maximum(first[row, 0], second[other, 0])
    end = np.minimum(first[row, 1], second[other, 1])
    return np.column_stack([begin, end])


def without(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The set in the first of two sets and not in the second."""
    if not (len(first) and len(second)):
        return first
    begin, end = int(first[0, 0]), int(first[-1, 1])
    edges = np.r_[begin, second.ravel().clip(begin, end), end].reshape(-1, 2)
    return common(first, united(edges))


def length_ns(intervals: np.ndarray) -> int:
    """Total length of a set."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())
