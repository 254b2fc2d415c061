"""What a file holds that may be compressed, within bounds: gzip and zstd, known by content.

A few bytes can stand for terabytes. What comes out is bounded in all, and in proportion to what
went in.
"""

from __future__ import annotations

import io
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
MAX_EXPANSION = 300  # one line again and again shrinks so far; deflate gets 1,030 out of zeros
FREE_EXPANSION_BYTES = 64 << 20
PIECE_BYTES = 1 << 14  # what is left behind a member is copied
FREE_MEMBERS, MIN_MEMBER_BYTES = 1 << 10, 64
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
BOMB_STEP = "cut the part that you need out of it, and give that as plain text"


class ByteStream(Protocol):
    """What a file is read from: an open binary file does."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""


def expanded(
    stream: ByteStream, *, max_bytes: int, path: str = "", next_step: str = BOMB_STEP
) -> Iterator[bytes]:
    """The contents of ``stream`` in pieces.

    Raises InputError naming the file for one that does not expand, expands beyond
    ``MAX_EXPANSION`` times its size, or holds more than ``max_bytes``.
    """
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
        if n_bytes > max_bytes:
            said = f"larger than {_size(max_bytes)}"
            raise InputError(said, path=path, next_step=next_step)
        yield chunk


def expanded_bytes(
    data: bytes, *, max_bytes: int, path: str = "", next_step: str = BOMB_STEP
) -> bytes:
    """The contents of ``data`` as a whole; raises as ``expanded``."""
    if not data.startswith((GZIP, ZSTD)) and len(data) <= max_bytes:
        return data
    stream = io.BytesIO(data)
    return b"".join(expanded(stream, max_bytes=max_bytes, path=path, next_step=next_step))


def expanded_head(head: bytes) -> bytes:
    """The beginning of a file whose first bytes are ``head``; those themselves where they do not
    expand."""
    if not head.startswith((GZIP, ZSTD)):
        return head
    pieces = expanded(io.BytesIO(head), max_bytes=1 << 62)
    try:
        return next(pieces, b"")
    except InputError:
        return head


def _size(n_bytes: int) -> str:
    is_large = n_bytes >= 1 << 30
    return f"{n_bytes >> 30} GiB" if is_large else f"{n_bytes >> 20} MiB"


def _plain(stream: ByteStream, first: bytes) -> Iterator[bytes]:
    while first:
        yield first
        first = stream.read(READ_BYTES)


def _gunzipped(stream: ByteStream, data: bytes, path: str) -> Iterator[bytes]:
    """Every member of a gzip file; one that ends too early gives what is there."""
    n_in = n_out = n_members = 0
    member = zlib.decompressobj(wbits=31)
    while data:
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            n_in += len(piece)
            while piece:
                try:
                    out = member.decompress(piece, READ_BYTES)
                except zlib.error as error:
                    said = f"is no whole gzip: {error}"
                    raise InputError(said, path=path, next_step=BOMB_STEP) from error
                n_out += len(out)
                _check_expansion(n_in, n_out, path)
                yield out
                piece = member.unconsumed_tail
                if member.eof:
                    piece = member.unused_data.lstrip(b"\0")  # padding between members is allowed
                    member = zlib.decompressobj(wbits=31)
                    n_members += 1
                    _check_members(n_members, n_out, path)
        data = stream.read(READ_BYTES)


def _check_members(n_members: int, n_out: int, path: str) -> None:
    if n_members > FREE_MEMBERS and n_out < n_members * MIN_MEMBER_BYTES:
        said = f"is gzip in {n_members:,} parts that hold next to nothing"
        raise InputError(said, path=path, next_step=BOMB_STEP)


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
