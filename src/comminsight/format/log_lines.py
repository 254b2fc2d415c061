"""The lines of a log, from a stream that may be compressed, of any encoding, and hostile.

Memory is bounded by one block and one line, whatever the stream holds.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

from comminsight.format.expanding import ByteStream, expanded

MAX_LINE_BYTES = 1 << 14
MAX_LOG_BYTES = 16 << 30
UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(slots=True, frozen=True)
class Block:
    """Successive lines. ``data`` holds them joined; ``cut`` are the positions of those of which
    only the first ``MAX_LINE_BYTES`` are here. ``is_torn``: nothing ends the last one."""

    lines: list[bytes]
    data: bytes
    cut: frozenset[int]
    is_torn: bool = False


def blocks(stream: ByteStream, *, path: str = "") -> Iterator[Block]:
    """The lines of ``stream`` in blocks, without their newlines.

    gzip and zstd are known by their first bytes. Raises InputError naming the file for one that
    does not expand, or expands beyond ``MAX_EXPANSION`` times its size or ``MAX_LOG_BYTES``.
    """
    carry, is_cut = b"", False
    for chunk in _decoded(expanded(stream, max_bytes=MAX_LOG_BYTES, path=path)):
        head, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield _block(carry + head, first_is_cut=is_cut)
            carry, is_cut = b"", False
        carry += rest
        if len(carry) > MAX_LINE_BYTES:
            carry, is_cut = carry[:MAX_LINE_BYTES], True
    if carry:
        yield _block(carry, first_is_cut=is_cut, is_torn=True)


def _block(data: bytes, *, first_is_cut: bool, is_torn: bool = False) -> Block:
    lines = data.split(b"\n")
    cut = {0} if first_is_cut else set()
    if max(map(len, lines)) > MAX_LINE_BYTES:
        for position, line in enumerate(lines):
            if len(line) > MAX_LINE_BYTES:
                lines[position] = line[:MAX_LINE_BYTES]
                cut.add(position)
    if cut:
        data = b"\n".join(lines)
    return Block(lines, data, frozenset(cut), is_torn)


def _decoded(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks in UTF-8: UTF-16 is known by its mark, all else is taken as it is."""
    first = next(chunks, b"")
    encoding = UTF16.get(first[:2])
    if encoding is None:
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first[2:]).encode("utf-8", "replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")
