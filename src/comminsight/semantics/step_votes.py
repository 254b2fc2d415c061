"""Votes by key: what most of the rows of one key say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NO_KEY = -1
UNKNOWN_STEP = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Votes:
    """``values[i]`` is what most rows with ``keys[i]`` say; ``keys`` ascend."""

    keys: np.ndarray
    values: np.ndarray

    def of(self, keys: np.ndarray) -> np.ndarray:
        """The value of each key, ``UNKNOWN_STEP`` for keys that nobody voted on."""
        if not len(self.keys):
            return np.full(len(keys), UNKNOWN_STEP)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found: np.ndarray = np.where(self.keys[at] == keys, self.values[at], UNKNOWN_STEP)
        return found


def vote(keys: np.ndarray, values: np.ndarray, *, prefers_high: bool = False) -> Votes:
    """The most frequent value of each key; of equally frequent ones the lowest, or the highest.

    Rows without a key or with an unknown value have no vote.
    """
    key, value, n = _counted(keys, values)
    order = np.lexsort((-value if prefers_high else value, -n, key))
    key, value = key[order], value[order]
    is_first = np.r_[True, key[1:] != key[:-1]] if len(key) else np.zeros(0, np.bool_)
    return Votes(key[is_first], value[is_first])


def n_like(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each row how many rows, itself included, have its key and its value; 0 without one."""
    found = np.zeros(len(keys), np.int64)
    rows = np.flatnonzero((keys != NO_KEY) & (values != UNKNOWN_STEP))
    if not len(rows):
        return found
    order = rows[np.lexsort((values[rows], keys[rows]))]
    starts = _starts(keys[order], values[order])
    n = np.diff(np.r_[starts, len(order)])
    found[order] = np.repeat(n, n)
    return found


def usual(values: np.ndarray) -> int:
    """The most frequent of the values, the lowest of several; raises ValueError for none."""
    different, n = np.unique(values, return_counts=True)
    return int(different[n.argmax()])


def _counted(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = np.flatnonzero((keys != NO_KEY) & (values != UNKNOWN_STEP))
    order = rows[np.lexsort((values[rows], keys[rows]))]
    key, value = keys[order], values[order]
    starts = _starts(key, value)
    return key[starts], value[starts], np.diff(np.r_[starts, len(order)])


def _starts(key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Where a new (key, value) begins in sorted rows."""
    if not len(key):
        return np.zeros(0, np.int64)
    is_new = np.r_[True, (key[1:] != key[:-1]) | (value[1:] != value[:-1])]
    return np.flatnonzero(is_new)
