"""Many lines of NCCL's Inspector plugin at once: columns cut out of the bytes, without objects.

A block is laid beside its first line, key by key. A line with the same keys in the same order, and
with whole numbers and known words between them, means the same; all others are left to the exact
reader. The heads of lines are compared with each other byte by byte, but for the time of their
dump, and only those that are new are decoded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from comminsight.format.inspector_bytes import WORD_BYTES, Bytes, digits, word_of
from comminsight.format.inspector_layout import END, NUMBERS, TEXTS, Layout, layout_of
from comminsight.format.inspector_rows import NOT_STATED, ROW_DTYPE

STAMP_BYTES = 16  # of a time in microseconds, from 2001 to 2286
MAX_PLACES = 32  # in which the payload or the time may begin, within one block
MAX_HEAD_BYTES = 1 << 12
_STAMP_KEY = b'"dump_timestamp_us":'
_HALF = 10**WORD_BYTES


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """``rows`` (context unset) of the ``lines`` (n_rows,) that were read. The head of each, which
    ends before the payload and differs at most in its time, is that of ``heads`` at ``head_of``
    (n_rows,); ``head_dumps_us`` is what was taken for the time in them. ``is_word`` (n_rows,) are
    those with a word for a bandwidth."""

    rows: np.ndarray
    lines: np.ndarray
    head_of: np.ndarray
    heads: list[bytes]
    head_dumps_us: list[int]
    is_word: np.ndarray


def block_columns(text: bytes, begins: np.ndarray, ends: np.ndarray) -> BlockColumns | None:
    """The lines of ``text`` that are like its first; None where that is no record with a header.

    ``text`` ends with ``MARGIN``; ``begins`` and ``ends`` (n_lines,) are those of the lines.
    """
    layout = layout_of(text[int(begins[0]) : int(ends[0])])
    if layout is None:
        return None
    block = Bytes(text)
    payload, is_read = _found(block, begins, ends, layout.payload)
    rows, rest, is_whole = _rows(block, layout, payload + len(layout.payload) - 1)
    is_plain, is_word = _ended(block, layout, rest, ends)
    is_read &= is_whole & (is_plain | is_word) & (payload - begins <= MAX_HEAD_BYTES)
    heads = _Heads(block, begins, payload)
    heads.read(np.flatnonzero(is_read))
    rows["dump_us"] = heads.dump_us
    lines = np.flatnonzero(heads.of >= 0)
    if len(lines) < len(rows):
        rows, is_word = rows[lines], is_word[lines]
    return BlockColumns(rows, lines, heads.of[lines], heads.texts, heads.dumps_us, is_word)


def _found(
    block: Bytes, begins: np.ndarray, ends: np.ndarray, key: bytes
) -> tuple[np.ndarray, np.ndarray]:
    """Where ``key`` stands in each line, and in which lines it was found: it is looked for where
    other lines have it."""
    places, is_found = begins.copy(), np.zeros(len(begins), bool)
    left = np.arange(len(begins))
    for _ in range(MAX_PLACES):
        if not len(left):
            break
        first = left[0]
        offset = block.text.find(key, int(begins[first]), int(ends[first])) - int(begins[first])
        if offset < 0:
            left = left[1:]
            continue
        own, own_ends = (begins, ends) if len(left) == len(ends) else (begins[left], ends[left])
        at = np.minimum(own + offset, own_ends)  # what begins there is not within the line
        is_there = block.begins_with(at, key)
        if len(left) == len(ends) and is_there.all():
            return at, is_there
        here = left[is_there]
        places[here], is_found[here] = at[is_there], True
        left = left[~is_there]
    return places, is_found


def _rows(
    block: Bytes, layout: Layout, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of the payloads that begin at ``at``, the ends of their last values, and which of
    them were read: what stands in the others means nothing."""
    rows = np.zeros(len(at), ROW_DTYPE)
    rows["peer"] = rows["channels_us"] = NOT_STATED
    is_read = np.ones(len(at), bool)
    for before, name in layout.fields:
        if name in NUMBERS:
            column, limit = NUMBERS[name]
            values, at, is_value = block.numbers(at, before)
            is_value &= values < limit
        else:
            column, known = TEXTS[name]
            values, at, is_value = block.words(at, before, known)
        rows[column] = values
        is_read &= is_value
    return rows, at, is_read


def _ended(
    block: Bytes, layout: Layout, at: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """In which lines nothing but decimals stands behind ``at``, and in which nothing but words for
    them, up to the end of the line."""
    begin, is_plain = at, np.ones(len(at), bool)
    for before in layout.unread:
        at, is_number = block.decimals(at, before)
        is_plain &= is_number
    is_plain &= block.begins_with(at, END) & (at + len(END) == ends)
    is_word = np.zeros(len(at), bool)
    others = np.flatnonzero(~is_plain) if layout.words else np.zeros(0, np.int64)
    length = len(layout.words)
    others = others[begin[others] + length == ends[others]]
    is_word[others] = block.begins_with(begin[others], layout.words)
    return is_plain, is_word


class _Heads:
    """The heads of lines. ``of`` (n_lines,) is for each line the place of its head in ``texts``, -1
    where it was not read, and ``dump_us`` the time in it; ``dumps_us`` are those of ``texts``.

    A head is taken for that of the line before, among those of its length, where all bytes but
    those of the time are the same.
    """

    def __init__(self, block: Bytes, begins: np.ndarray, ends: np.ndarray) -> None:
        self.texts: list[bytes] = []
        self.dumps_us: list[int] = []
        self.of, self.dump_us = np.full(len(begins), -1), np.zeros(len(begins), np.int64)
        self._block, self._begins, self._lengths = block, begins, ends - begins

    def read(self, lines: np.ndarray) -> None:
        """Reads the heads of ``lines``; those behind ``MAX_PLACES`` unlike ones are left."""
        for _ in range(MAX_PLACES):
            if not len(lines):
                break
            begin, length = int(self._begins[lines[0]]), int(self._lengths[lines[0]])
            key = self._block.text.find(_STAMP_KEY, begin, begin + length)
            is_here = self._lengths[lines] == length
            if key >= 0:
                self._take(lines[is_here], length, key + len(_STAMP_KEY) - begin)
                is_here = self.of[lines] >= 0
            is_here[0] = True
            lines = lines[~is_here]

    def _take(self, lines: np.ndarray, length: int, stamp: int) -> None:
        """Reads the heads of one ``length`` that have their time at ``stamp``."""
        if stamp + STAMP_BYTES >= length:
            return
        spans = self._block.spans(self._begins[lines], length)
        dump_us, is_time = _times_us(spans, stamp)
        firsts = _changes(_without(spans, stamp))
        numbers = np.full(len(firsts), -1)
        for n, first in enumerate(firsts.tolist()):
            begin = int(self._begins[lines[first]])
            head = self._block.text[begin : begin + length]
            is_key = head.startswith(_STAMP_KEY, stamp - len(_STAMP_KEY))
            if is_key and not head[stamp + STAMP_BYTES : stamp + STAMP_BYTES + 1].isdigit():
                numbers[n] = len(self.texts)
                self.texts.append(head)
                self.dumps_us.append(int(dump_us[first]))
        numbers = np.repeat(numbers, np.diff(firsts, append=len(lines)))
        self.of[lines] = np.where(is_time, numbers, -1)
        self.dump_us[lines] = dump_us


def _times_us(spans: np.ndarray, at: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of ``STAMP_BYTES`` digits at the byte ``at`` of the spans, and where one is."""
    high, low = word_of(spans, at), word_of(spans, at + WORD_BYTES)
    is_new = np.ones(len(spans), bool)
    is_new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    (first, n_first, is_time), (second, n_second, _) = digits(high[is_new]), digits(low[is_new])
    is_time &= (n_first == WORD_BYTES) & (n_second == WORD_BYTES)
    times_us = (first * np.uint64(_HALF) + second).view(np.int64)
    place = np.cumsum(is_new) - 1
    return times_us[place], is_time[place]


def _without(spans: np.ndarray, at: int) -> np.ndarray:
    """``spans`` themselves, with zeros from the byte ``at`` on for ``STAMP_BYTES``."""
    for n in range(at // WORD_BYTES, -(-(at + STAMP_BYTES) // WORD_BYTES)):
        first = max(0, at - n * WORD_BYTES)
        last = min(WORD_BYTES, at + STAMP_BYTES - n * WORD_BYTES)
        cleared = (1 << 8 * last) - (1 << 8 * first)
        spans[:, n] &= np.uint64(((1 << 64) - 1) ^ cleared)
    return spans


def _changes(spans: np.ndarray) -> np.ndarray:
    """The rows that are not as the one before them; the first always."""
    n_words = spans.shape[1]
    words = spans.reshape(-1)
    differs = np.flatnonzero(words[n_words:] != words[:-n_words]) // n_words + 1
    return np.concatenate(([0], np.unique(differs)))
