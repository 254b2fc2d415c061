"""Numbers, words and fixed texts at many places of one text at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

MARGIN = b"\n" * 1024  # behind a text, so that every look ahead is within it
WORD_BYTES = 8
_ZEROS, _LOW = np.uint64(0x3030303030303030), np.uint64(0x7F7F7F7F7F7F7F7F)
_ABOVE_NINE, _HIGH = np.uint64(0x7676767676767676), np.uint64(0x8080808080808080)
_ONE = np.uint64(1)
_POWERS = 10 ** np.arange(9, dtype=np.int64)
_STEPS = tuple(
    (np.uint64(mask), np.uint64(factor), np.uint64(shift))
    for mask, factor, shift in (
        (0x0F0F0F0F0F0F0F0F, 2561, 8), (0x00FF00FF00FF00FF, 6553601, 16),
        (0x0000FFFF0000FFFF, 42949672960001, 32),
    )
)  # fmt: skip


class Bytes:
    """A text that ends with ``MARGIN``, seen as the words that begin at any of its bytes."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._words = np.ndarray((len(text) - WORD_BYTES,), "<u8", text, strides=(1,))

    def words_at(self, at: np.ndarray) -> np.ndarray:
        """The eight bytes from each place on, (n,) u8, the first one lowest."""
        found: np.ndarray = self._words[at]
        return found

    def windows(self, at: np.ndarray, width: int) -> np.ndarray:
        """The ``width`` bytes from each place on, (n, width)."""
        shape = len(self.text) - width + 1, width
        view = np.ndarray(shape, np.uint8, self.text, strides=(1, 1))
        return np.ascontiguousarray(view[np.minimum(at, shape[0] - 1)])

    def begins_with(self, at: np.ndarray, text: bytes) -> np.ndarray:
        """At which places ``text`` stands."""
        is_there = np.ones(len(at), bool)
        for n in range(0, len(text), WORD_BYTES):
            first = min(n, max(0, len(text) - WORD_BYTES))  # the last word overlaps the one before
            piece = text[first : first + WORD_BYTES]
            found = self._words[at + first]
            if len(piece) < WORD_BYTES:
                found = found & np.uint64((1 << 8 * len(piece)) - 1)
            is_there &= found == np.uint64(int.from_bytes(piece, "little"))
        return is_there

    def numbers(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The whole numbers of up to 16 digits that begin there, where they end, and at which
        places there is one."""
        values, lengths, is_number = self._digits(at)
        is_number &= lengths > 0
        if len(long := np.flatnonzero(lengths == WORD_BYTES)):
            more, n_more, _ = self._digits(at[long] + WORD_BYTES)
            values[long] = values[long] * _POWERS[n_more] + more
            lengths[long] += n_more
            full = long[n_more == WORD_BYTES]
            after = self._words[at[full] + 2 * WORD_BYTES] & np.uint64(0xFF)
            is_number[full] &= (after < ord("0")) | (after > ord("9"))
        return values, at + lengths, is_number

    def _digits(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Value and length of the up to eight digits there, and where they lead with no zero."""
        found = self._words[at] ^ _ZEROS
        stop = (((found & _LOW) + _ABOVE_NINE) | found) & _HIGH
        below = (stop & (~stop + _ONE)) - _ONE
        lengths = (np.bitwise_count(below) >> 3).astype(np.int64)
        is_zero_led = ((found & np.uint64(0xFF)) == 0) & (lengths > 1)
        shift = ((8 - lengths) * 8).astype(np.uint64)
        value = np.where(lengths > 0, found << np.minimum(shift, np.uint64(56)), np.uint64(0))
        for mask, factor, step in _STEPS:
            value = ((value & mask) * factor) >> step
        return value.astype(np.int64), lengths, ~is_zero_led

    def words(
        self, at: np.ndarray, known: Mapping[str, int]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The codes of the quoted words there, where they end, and at which places there is a known
        one."""
        codes, ends, is_known = np.zeros(len(at), np.int64), at.copy(), np.zeros(len(at), bool)
        left = np.arange(len(at))
        for text, code in known.items():
            if not len(left):
                break
            quoted = f'"{text}"'.encode()
            is_one = self.begins_with(at[left], quoted)
            rows = left[is_one]
            codes[rows], is_known[rows] = code, True
            ends[rows] += len(quoted)
            left = left[~is_one]
        return codes, ends, is_known
