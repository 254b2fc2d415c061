"""Numbers, words and fixed texts at many places of one text at a time.

A look at a place costs about the same for eight bytes as for forty, so a key is looked at together
with what follows it. Text is taken as little-endian words of eight bytes, the first byte lowest.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

MARGIN = b"\n" * 1024  # behind a text, so that every look ahead is within it
WORD_BYTES = 8
_WORD_BITS = 64
_ZEROS, _LOW = np.uint64(0x3030303030303030), np.uint64(0x7F7F7F7F7F7F7F7F)
_ABOVE_NINE, _HIGH = np.uint64(0x7676767676767676), np.uint64(0x8080808080808080)
_ONE, _LAST_BYTE = np.uint64(1), np.uint64(0xFF)
_POWERS = 10 ** np.arange(9, dtype=np.uint64)
_POINT, _NEWLINE = ord("."), ord("\n")
_STEPS = tuple(
    (np.uint64(mask), np.uint64(factor), np.uint64(shift))
    for mask, factor, shift in (
        (0x0F0F0F0F0F0F0F0F, 2561, 8), (0x00FF00FF00FF00FF, 6553601, 16),
        (0x0000FFFF0000FFFF, 42949672960001, 32),
    )
)  # fmt: skip
_Found = tuple[np.ndarray, np.ndarray, np.ndarray]


class Bytes:
    """A text that ends with ``MARGIN``, seen as the spans that begin at any of its bytes."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def spans(self, at: np.ndarray, n_bytes: int) -> np.ndarray:
        """The ``n_bytes`` from each place on, rounded up to words: (n, n_words) u8."""
        n_words = -(-n_bytes // WORD_BYTES)
        width = n_words * WORD_BYTES
        view = np.ndarray((len(self.text) - width + 1,), f"V{width}", self.text, strides=(1,))
        found: np.ndarray = view[at].view("<u8").reshape(len(at), n_words)
        return found

    def begins_with(self, at: np.ndarray, text: bytes) -> np.ndarray:
        """At which places ``text`` stands."""
        return equals(self.spans(at, len(text)), text)

    def numbers(self, at: np.ndarray, key: bytes = b"") -> _Found:
        """The whole numbers of up to 16 digits that begin behind ``key`` there, where they end, and
        at which places ``key`` stands with one behind it."""
        spans = self.spans(at, len(key) + WORD_BYTES)
        at = at + len(key)
        values, lengths, is_number = digits(word_of(spans, len(key)))
        is_number &= lengths > 0
        if key:
            is_number &= equals(spans, key)
        if len(long := np.flatnonzero(lengths == WORD_BYTES)):
            rest = self.spans(at[long] + WORD_BYTES, WORD_BYTES + 1)
            more, n_more, _ = digits(rest[:, 0])
            values[long] = values[long] * _POWERS[n_more] + more
            lengths[long] += n_more
            is_number[long] &= (n_more < WORD_BYTES) | ~is_digit(rest[:, 1])
        return values.view(np.int64), at + lengths, is_number

    def decimals(self, at: np.ndarray, key: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Where the numbers end that stand behind ``key`` there, and at which places they do: up to
        seven digits, and up to 15 behind a point. Their values are not read."""
        spans = self.spans(at, len(key) + WORD_BYTES)
        words = word_of(spans, len(key))
        lengths = n_digits(words)
        is_number = equals(spans, key) & (lengths > 0) & (lengths < WORD_BYTES)
        is_number &= ~_is_zero_led(words, lengths)
        at = at + (len(key) + lengths)
        behind = self.spans(at, 1 + WORD_BYTES)
        has_point = (behind[:, 0] & _LAST_BYTE) == _POINT
        n_behind = n_digits(word_of(behind, 1))
        if len(long := np.flatnonzero(n_behind == WORD_BYTES)):
            n_behind[long] += n_digits(self.spans(at[long] + 1 + WORD_BYTES, WORD_BYTES)[:, 0])
        is_number &= ~has_point | ((n_behind > 0) & (n_behind < 2 * WORD_BYTES))
        n_behind += 1
        n_behind *= has_point
        return at + n_behind, is_number

    def words(self, at: np.ndarray, key: bytes, known: Mapping[str, int]) -> _Found:
        """The codes (u1) of the quoted words behind ``key`` there, where they end, and at which
        places ``key`` stands with a known one behind it."""
        texts = {key + f'"{one}"'.encode(): code for one, code in known.items()}
        spans = self.spans(at, max(map(len, texts)))
        codes, lengths = np.zeros(len(at), np.uint8), np.zeros(len(at), np.uint8)
        left = np.arange(len(at))
        for text, code in texts.items():
            is_one = equals(spans if len(left) == len(at) else spans[left], text)
            rows = left[is_one]
            codes[rows], lengths[rows] = code, len(text)
            if not len(left := left[~is_one]):
                break
        return codes, at + lengths, lengths > 0


def lines_of(text: bytes, n_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the lines in the first ``n_bytes`` of ``text`` begin and end, without their newlines:
    those of two bytes or more. Behind ``n_bytes`` are at least seven bytes more."""
    n_words = -(-n_bytes // WORD_BYTES)
    is_end = np.frombuffer(text, np.uint8, n_words * WORD_BYTES) == _NEWLINE
    is_end[n_bytes:] = False
    ends = _true_places(is_end)
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))[: len(ends)]
    is_full = ends - begins > 1
    return (begins, ends) if is_full.all() else (begins[is_full], ends[is_full])


def _true_places(is_one: np.ndarray) -> np.ndarray:
    """``np.flatnonzero``, in half the time where few are true; a whole number of words."""
    words = is_one.view(np.uint64)
    places = np.flatnonzero(words != 0)
    below = words[places] - _ONE
    if (words[places] & below).any():
        return np.flatnonzero(is_one)  # two in one word
    found: np.ndarray = places * WORD_BYTES + (np.bitwise_count(below) >> 3)
    return found


def equals(spans: np.ndarray, text: bytes) -> np.ndarray:
    """Which of the spans, (n, n_words), begin with ``text``."""
    is_one = np.ones(len(spans), bool)
    for n, at in enumerate(range(0, len(text), WORD_BYTES)):
        piece = text[at : at + WORD_BYTES]
        found = spans[:, n]
        if len(piece) < WORD_BYTES:
            found = found & np.uint64((1 << 8 * len(piece)) - 1)
        is_one &= found == np.uint64(int.from_bytes(piece, "little"))
    return is_one


def word_of(spans: np.ndarray, at: int) -> np.ndarray:
    """The words that begin at the byte ``at`` of the spans, (n,) u8."""
    n, left = divmod(at, WORD_BYTES)
    if not left:
        return spans[:, n]
    low = spans[:, n] >> np.uint64(8 * left)
    both: np.ndarray = low | (spans[:, n + 1] << np.uint64(_WORD_BITS - 8 * left))
    return both


def digits(words: np.ndarray) -> _Found:
    """Value (u8) and number of the digits, up to eight, that each word begins with, and where they
    lead with no zero."""
    lengths = n_digits(words)
    values = (words ^ _ZEROS) << (WORD_BYTES - lengths).view(np.uint64) * np.uint64(8)
    for mask, factor, shift in _STEPS:
        values &= mask
        values *= factor
        values >>= shift
    return values, lengths, ~_is_zero_led(words, lengths)


def n_digits(words: np.ndarray) -> np.ndarray:
    """How many digits, up to eight, each word begins with: (n,) i8."""
    found = words ^ _ZEROS
    stop = found & _LOW
    stop += _ABOVE_NINE
    stop |= found
    stop &= _HIGH
    below = stop - _ONE
    below &= ~stop
    lengths: np.ndarray = (np.bitwise_count(below) >> 3).astype(np.int64)
    return lengths


def is_digit(words: np.ndarray) -> np.ndarray:
    """Which words begin with a digit."""
    first = words & _LAST_BYTE
    is_one: np.ndarray = (first >= ord("0")) & (first <= ord("9"))
    return is_one


def _is_zero_led(words: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    is_led: np.ndarray = ((words & _LAST_BYTE) == ord("0")) & (lengths > 1)
    return is_led
