"""The lines of a log, from a stream that may be compressed, of any encoding, and hostile.

Memory is bounded by one block and one line, whatever the stream holds.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Protocol, cast

from comminsight.errors import InputError

try:
    import zstandard
except ImportError:  # not part of the base install
    zstandard = None  # type: ignore[assignment]

READ_BYTES = 1 << 18
MAX_LINE_BYTES = 1 << 14
MAX_LOG_BYTES = 16 << 30
MAX_EXPANSION = 300  # one line again and again shrinks so far; deflate gets 1,030 out of zeros
FREE_EXPANSION_BYTES = 64 << 20
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
BOMB_STEP = "cut the part that you need out of it, and give that as plain text"


class ByteStream(Protocol):
    """What a log is read from: an open binary file does."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""


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
    for chunk in _decoded(_expanded(stream, path)):
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


def _expanded(stream: ByteStream, path: str) -> Iterator[bytes]:
    first = stream.read(READ_BYTES)
    if first.startswith(GZIP):
        chunks = _gunzipped(stream, first, path)
    elif first.startswith(ZSTD):
        chunks = _unzstd(stream, first, path)
    else:
        chunks = _plain(stream, first)
    n_bytes = 0
    for chunk in chunks:
        n_bytes += len(chunk)
        if n_bytes > MAX_LOG_BYTES:
            raise InputError(f"larger than {MAX_LOG_BYTES >> 30} GiB", path=path,
                             next_step=BOMB_STEP)  # fmt: skip
        yield chunk


def _plain(stream: ByteStream, first: bytes) -> Iterator[bytes]:
    while first:
        yield first
        first = stream.read(READ_BYTES)


def _gunzipped(stream: ByteStream, data: bytes, path: str) -> Iterator[bytes]:
    """Every member of a gzip file; one that ends too early gives what is there."""
    n_in = n_out = 0
    member = zlib.decompressobj(wbits=31)
    while data:
        n_in += len(data)
        while data:
            try:
                expanded = member.decompress(data, READ_BYTES)
            except zlib.error as error:
                raise InputError(f"is no whole gzip: {error}", path=path,
                                 next_step=BOMB_STEP) from error  # fmt: skip
            n_out += len(expanded)
            _check_expansion(n_in, n_out, path)
            yield expanded
            data = member.unconsumed_tail
            if member.eof:
                data = member.unused_data.lstrip(b"\0")  # padding between members is allowed
                member = zlib.decompressobj(wbits=31)
        data = stream.read(READ_BYTES)


def _unzstd(stream: ByteStream, first: bytes, path: str) -> Iterator[bytes]:
    if zstandard is None:
        raise InputError("is zstd, which needs the package zstandard", path=path,
                         next_step="unpack it with `zstd -d`")  # fmt: skip
    source = _Counted(stream, first)
    limits = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    reader = limits.stream_reader(cast("IO[bytes]", source), read_across_frames=True)
    n_out = 0
    while True:
        try:
            expanded = reader.read(READ_BYTES)
        except zstandard.ZstdError as error:
            said = str(error).partition("\n")[0]
            raise InputError(f"is no whole zstd: {said}", path=path,
                             next_step=BOMB_STEP) from error  # fmt: skip
        if not expanded:
            return
        n_out += len(expanded)
        _check_expansion(source.n_read, n_out, path)
        yield expanded


def _check_expansion(n_in: int, n_out: int, path: str) -> None:
    if n_out > FREE_EXPANSION_BYTES and n_out > n_in * MAX_EXPANSION:
        raise InputError(
            f"expands to more than {MAX_EXPANSION} times its size: no log does",
            path=path, next_step=BOMB_STEP,
        )  # fmt: skip


@dataclass(slots=True)
class _Counted:
    """A stream of which the beginning is already read; counts what it hands out."""

    stream: ByteStream
    first: bytes
    n_read: int = 0

    def read(self, size: int = READ_BYTES) -> bytes:
        if self.first:
            data, self.first = self.first[:size], self.first[size:]
        else:
            data = self.stream.read(size)
        self.n_read += len(data)
        return data
