"""The buffer of the reorder stage: records that may still be overtaken by earlier ones."""

from __future__ import annotations

import numpy as np

from comminsight.model.event import OP_DTYPE, OP_RECORD_BYTES

_WORDS = OP_RECORD_BYTES // 8
_LARGE = 65_536  # records; a buffer that had to grow beyond is given back


class PendingRecords:
    """Records not yet emitted, in arrival order, in one buffer that is used again and again."""

    __slots__ = ("_start", "_words", "n")

    def __init__(self) -> None:
        self.n = 0
        self._words = np.empty((0, _WORDS), np.int64)  # rows move as 16 words: no field is touched
        self._start = np.empty(0, np.int64)

    def append(self, rows: np.ndarray, keep: np.ndarray) -> None:
        """Add the rows (``OP_DTYPE``) where the mask ``keep`` is true."""
        n = self.n + int(np.count_nonzero(keep))
        if n > len(self._words):
            self._resize(max(n, 2 * len(self._words)))
        words = rows.view(np.int64).reshape(-1, _WORDS)
        if n - self.n == len(rows):
            self._words[self.n : n], self._start[self.n : n] = words, rows["start_ns"]
        else:
            np.compress(keep, words, axis=0, out=self._words[self.n : n])
            np.compress(keep, rows["start_ns"], out=self._start[self.n : n])
        self.n = n

    def take_before(self, cut_ns: int) -> np.ndarray:
        """Remove the records that start before the cut, sorted by (start, arrival)."""
        start, words = self._start[: self.n], self._words[: self.n]
        final, rest = _sorted_before(start, cut_ns)
        taken = words.take(final, axis=0)
        self._words[: len(rest)] = words.take(rest, axis=0)
        self._start[: len(rest)] = start.take(rest)
        self.n = len(rest)
        if len(self._words) > max(_LARGE, 8 * self.n):  # a long hold has ended
            self._resize(max(_LARGE, self.n))
        return taken.view(OP_DTYPE).reshape(-1)

    def rows(self) -> np.ndarray:
        """All records in arrival order, as a view."""
        return self._words[: self.n].view(OP_DTYPE).reshape(-1)

    def _resize(self, capacity: int) -> None:
        words, start = np.empty((capacity, _WORDS), np.int64), np.empty(capacity, np.int64)
        words[: self.n], start[: self.n] = self._words[: self.n], self._start[: self.n]
        self._words, self._start = words, start


def _sorted_before(start: np.ndarray, cut_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """Who starts before the cut, by (start, arrival), and who does not, by arrival."""
    is_final = start < cut_ns
    n_final = int(np.count_nonzero(is_final))
    if 2 * n_final < len(start):  # few go: only these are sorted
        final = np.flatnonzero(is_final)
        return final[np.argsort(start[final], kind="stable")], np.flatnonzero(~is_final)
    order = np.argsort(start, kind="stable")
    return order[:n_final], np.sort(order[n_final:])
