"""Many lines of NCCL's Inspector plugin at once: columns cut out of the bytes, without objects.

A block is laid beside its first line, key by key. A line whose keys end alike (in their last eight
bytes) in the same order, with whole numbers and known words between them, means the same; all
others are left to the exact reader. The heads of lines are compared with each other byte by byte,
but for the time of their dump, and only those that are new are decoded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from comminsight.format.inspector_bytes import Bytes
from comminsight.format.inspector_rows import (
    ALGORITHMS,
    MAX_SIZE_BYTES,
    MAX_US,
    NOT_STATED,
    OPS,
    PROTOCOLS,
    ROW_DTYPE,
    SOURCES,
)

STAMP_BYTES = 16  # of a time in microseconds, from 2001 to 2286
MAX_PLACES = 16  # in which the payload may begin, within one block
MAX_REST_BYTES = 128  # behind the last value that is read: two bandwidths
_STAMP_KEY = b'"dump_timestamp_us":'
_TEXTS: dict[str, tuple[str, dict[str, int]]] = {
    "": ("op", OPS), "_timing_source": ("source", SOURCES),
    "_algo": ("algo", ALGORITHMS), "_proto": ("proto", PROTOCOLS),
}  # fmt: skip
_NUMBERS = {
    "_sn": ("sn", 1 << 32), "_msg_size_bytes": ("size_bytes", MAX_SIZE_BYTES),
    "_exec_time_us": ("exec_us", MAX_US), "_peer": ("peer", 1 << 24),
}  # fmt: skip
_FIELD = re.compile(
    rb'([,{]"([a-z_0-9]{1,64})":)(?:"([^"\\]*)"|([0-9]+)(?=[,}])|[^,}"]+)', re.ASCII
)


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """``rows`` (context unset) of the lines where ``is_taken`` (n_lines,). From each of
    ``head_places`` in ``rows`` on, lines begin as ``heads`` say, which end before the payload.
    ``n_not_finite`` have a word for a bandwidth."""

    rows: np.ndarray
    is_taken: np.ndarray
    head_places: list[int]
    heads: list[bytes]
    n_not_finite: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """``fields`` are (text before the value, name) up to the last one that is read."""

    kind: str
    payload: bytes
    fields: tuple[tuple[bytes, str], ...]
    next_key: bytes


def block_columns(text: bytes, begins: np.ndarray, ends: np.ndarray) -> BlockColumns | None:
    """The lines of ``text`` that are like its first; None where that is no record with a header.

    ``text`` ends with ``MARGIN``; ``begins`` and ``ends`` (n_lines,) are those of the lines.
    """
    layout = _layout(text[int(begins[0]) : int(ends[0])])
    if layout is None:
        return None
    block = Bytes(text)
    payload, is_like = _found(block, begins, ends, layout.payload)
    stamp, is_stamped = _found(block, begins, payload, _STAMP_KEY)
    is_like &= is_stamped & block.begins_with(begins, b'{"header":{"')
    is_like &= block.begins_with(ends - 2, b"}}")
    lines = np.flatnonzero(is_like)
    begins, ends, payload, stamp = begins[lines], ends[lines], payload[lines], stamp[lines]
    stamp = stamp + len(_STAMP_KEY)
    rows, rest, is_read = _rows(block, layout, payload + len(layout.payload) - 1)
    rows["dump_us"], stamp_end, is_number = block.numbers(stamp)
    is_read &= is_number & (stamp_end == stamp + STAMP_BYTES) & (ends - rest < MAX_REST_BYTES)
    kept = np.flatnonzero(is_read)
    is_taken = np.zeros(len(is_like), bool)
    is_taken[lines[kept]] = True
    begins, payload = begins[kept], payload[kept]
    at = np.flatnonzero(_differs(block, begins, payload, stamp[kept])).tolist()
    heads = [text[int(begins[n]) : int(payload[n])] for n in at]
    word = block.begins_with(rest[kept], layout.next_key + b'"') if layout.next_key else np.zeros(0)
    rows = rows if len(kept) == len(rows) else rows[kept]
    return BlockColumns(rows, is_taken, at, heads, int(word.sum()))


def _layout(line: bytes) -> _Layout | None:
    """That of a line with a header before its one payload, None for others and for verbose ones."""
    kind = "coll" if b'"coll_perf":{' in line else "p2p"
    payload = f'"{kind}_perf":{{'.encode()
    at = line.find(payload)
    if at < 0 or not line.startswith(b'{"header":{"') or not line.endswith(b"}}"):
        return None
    rest = line[at + len(payload) - 1 : -1]
    found = list(_FIELD.finditer(rest))
    if b"".join(one.group(0) for one in found) + b"}" != rest:
        return None
    names = [one.group(2).decode() for one in found]
    needed = {kind, f"{kind}_sn", f"{kind}_msg_size_bytes", f"{kind}_exec_time_us"}
    read = {kind + name for name in (*_TEXTS, *_NUMBERS)}
    if len({*names}) < len(names) or not needed <= {*names}:
        return None
    n_read = 1 + max(n for n, name in enumerate(names) if name in read)
    is_whole = all(names[n] in read and (found[n][3] or found[n][4]) for n in range(n_read))
    fields = tuple((one.group(1), name) for one, name in zip(found[:n_read], names, strict=False))
    next_key = found[n_read].group(1) if n_read < len(found) else b""
    return _Layout(kind, payload, fields, next_key) if is_whole else None


def _found(
    block: Bytes, begins: np.ndarray, ends: np.ndarray, key: bytes
) -> tuple[np.ndarray, np.ndarray]:
    """Where ``key`` stands first in each line, and in which lines it was found: it is looked for
    where other lines have it."""
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
        at = begins[left] + offset
        is_there = block.begins_with(np.minimum(at, ends[left]), key) & (at < ends[left])
        here = left[is_there]
        places[here], is_found[here] = begins[here] + offset, True
        left = left[~is_there]
    return places, is_found


def _rows(
    block: Bytes, layout: _Layout, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of the payloads that begin at ``at``, the ends of their last values, and which of
    them were read."""
    rows = np.zeros(len(at), ROW_DTYPE)
    rows["peer"] = rows["channels_us"] = NOT_STATED
    is_read = np.ones(len(at), bool)
    for before, name in layout.fields:
        at = at + len(before)
        is_read &= block.begins_with(at - len(before[-8:]), before[-8:])
        tail = name.removeprefix(layout.kind)
        if tail in _NUMBERS:
            column, limit = _NUMBERS[tail]
            values, at, is_value = block.numbers(at)
            is_value &= values < limit
        else:
            column, known = _TEXTS[tail]
            values, at, is_value = block.words(at, known)
        rows[column] = np.where(is_value, values, 0)
        is_read &= is_value
    return rows, at, is_read


def _differs(block: Bytes, begins: np.ndarray, ends: np.ndarray, stamps: np.ndarray) -> np.ndarray:
    """Where a head is not, but for the time of its dump, that of the line before; true for the
    first."""
    lengths, offsets = ends - begins, stamps - begins
    differs = np.ones(len(begins), bool)
    differs[1:] = (lengths[1:] != lengths[:-1]) | (offsets[1:] != offsets[:-1])
    for both in np.unique(lengths << 32 | offsets).tolist():
        width, offset = both >> 32, both & 0xFFFFFFFF
        rows = np.flatnonzero((lengths == width) & (offsets == offset))
        first = _same(block, begins[rows], offset)
        last = _same(block, begins[rows] + offset + STAMP_BYTES, width - offset - STAMP_BYTES)
        is_next = rows[1:] == rows[:-1] + 1
        differs[rows[1:]] |= ~(first & last) & is_next
    return differs


def _same(block: Bytes, begins: np.ndarray, width: int) -> np.ndarray:
    """Which of the spans but the first equal the one before: ``(n - 1,)``."""
    n_words = width // 8
    words = block.windows(begins, n_words * 8).view(np.uint64).reshape(len(begins), n_words)
    is_same: np.ndarray = (words[1:] == words[:-1]).all(axis=1)
    last = block.words_at(begins + width - 8) if width >= 8 else block.words_at(begins)
    is_last: np.ndarray = last[1:] == last[:-1]
    both: np.ndarray = is_same & is_last
    return both
