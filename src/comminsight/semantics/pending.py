"""The buffer of the reorder stage: records that may still be overtaken by earlier ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from comminsight.model.event import OP_DTYPE, OP_RECORD_BYTES

_WORDS = OP_RECORD_BYTES // 8
_LARGE = 65_536  # records; a buffer that had to grow beyond is given back


class _Rows(NamedTuple):
    """Records as words, and their starts."""

    words: np.ndarray
    start_ns: np.ndarray


class PendingRecords:
    """Records not yet emitted, in arrival order, in one buffer that is used again and again.

    The newest are left where they are until it is known which of them go at once: most do, and
    these are moved once and not twice.
    """

    __slots__ = ("_n_held", "_newest", "_start_ns", "_words")

    def __init__(self) -> None:
        self._n_held = 0
        self._words = np.empty((0, _WORDS), np.int64)  # rows move as 16 words: no field is touched
        self._start_ns = np.empty(0, np.int64)
        self._newest = _Rows(self._words, self._start_ns)

    @property
    def n(self) -> int:
        """How many there are."""
        return self._n_held + len(self._newest.start_ns)

    def append(self, rows: np.ndarray, start_ns: np.ndarray, keep: np.ndarray) -> None:
        """Add the rows (``OP_DTYPE``, ``start_ns`` is theirs) where the mask ``keep`` is true; they
        must stay as they are until ``settle`` or ``take_before``."""
        self.settle()
        words = rows.view(np.int64).reshape(-1, _WORDS)
        if not keep.all():
            words, start_ns = np.compress(keep, words, axis=0), np.compress(keep, start_ns)
        self._newest = _Rows(words, start_ns)

    def settle(self) -> None:
        """Move the newest rows to the others."""
        newest = self._newest
        if len(newest.start_ns):
            self._reserve(self.n)
            held = slice(self._n_held, self.n)
            self._words[held], self._start_ns[held] = newest
            self._n_held = held.stop
            self._newest = _Rows(self._words[:0], self._start_ns[:0])

    def take_before(self, cut_ns: int) -> np.ndarray:
        """Remove the records that start before the cut, sorted by (start, arrival)."""
        held, newest = self._start_ns[: self._n_held], self._newest
        start_ns = np.concatenate([held, newest.start_ns]) if len(held) else newest.start_ns
        final, rest = _sorted_before(start_ns, cut_ns)
        taken, left = self._at(final), self._at(rest)
        self._newest, self._n_held = _Rows(left, start_ns.take(rest)), 0
        if len(self._words) > max(_LARGE, 8 * len(rest)):  # a long hold has ended
            self._words, self._start_ns = np.empty((0, _WORDS), np.int64), np.empty(0, np.int64)
        self.settle()
        return taken.view(OP_DTYPE).reshape(-1)

    def _at(self, places: np.ndarray) -> np.ndarray:
        """The rows at these places, as words."""
        n_held, newest = self._n_held, self._newest.words
        if not len(newest):
            return self._words.take(places, axis=0)
        if not n_held:
            return newest.take(places, axis=0)
        found: np.ndarray = newest.take(np.maximum(places - n_held, 0), axis=0)
        earlier = np.flatnonzero(places < n_held)
        found[earlier] = self._words.take(places[earlier], axis=0)
        return found

    def rows(self) -> np.ndarray:
        """All records in arrival order, as a view."""
        self.settle()
        return self._words[: self._n_held].view(OP_DTYPE).reshape(-1)

    def _reserve(self, n: int) -> None:
        if n > len(self._words):
            capacity = max(n, 2 * len(self._words))
            words, start_ns = np.empty((capacity, _WORDS), np.int64), np.empty(capacity, np.int64)
            words[: self._n_held] = self._words[: self._n_held]
            start_ns[: self._n_held] = self._start_ns[: self._n_held]
            self._words, self._start_ns = words, start_ns


def _sorted_before(start_ns: np.ndarray, cut_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """Who starts before the cut, by (start, arrival), and who does not, by arrival."""
    is_final = start_ns < cut_ns
    n_final = int(np.count_nonzero(is_final))
    if 2 * n_final < len(start_ns):  # few go: only these are sorted
        final = np.flatnonzero(is_final)
        return final[np.argsort(start_ns[final], kind="stable")], np.flatnonzero(~is_final)
    order = np.argsort(start_ns, kind="stable")
    return order[:n_final], np.sort(order[n_final:])
