"""Segment files: the whole of one at once, or piece by piece while it is being written.

Both ways are one: ``read_segment`` is a ``SegmentReader`` polled once to the end.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from comminsight.errors import FormatError, InputError
from comminsight.format.frames import Frame, FrameScan
from comminsight.format.identity import (
    MAX_JSON_BYTES,
    StreamHeader,
    parse_header_json,
    replace_identity,
)
from comminsight.format.layout import (
    FORMAT_MAJOR,
    FRAME_COMMS,
    FRAME_END,
    FRAME_IDENTITY,
    FRAME_LOSSES,
    FRAME_OPS,
    LOSS_REASONS,
    SEGMENT_HEADER_BYTES,
    SEGMENT_HEADER_DTYPE,
    SEGMENT_MAGIC,
)
from comminsight.format.schema import upgrade_comms, upgrade_records
from comminsight.model.event import COMM_DTYPE, empty_batch
from comminsight.model.tally import Tally
from comminsight.model.topology import SessionIdentity

PIECE_BYTES = 16 << 20  # most that one poll step reads
WHOLE_BYTES = 1 << 30  # a file up to this size is read as one piece, without a second copy
_INT64_BYTES = 8
_MAX_HEADER_BYTES = SEGMENT_HEADER_BYTES + 2 * MAX_JSON_BYTES


@dataclass(frozen=True, slots=True)
class SegmentData:
    """One segment file.

    ``comms`` holds the newest row of every ``comm_index``; ``losses`` is the last cumulative table
    ``(n_rows, LOSS_REASONS)``, row = comm_index; ``clock_pairs`` is ``(n, 2)`` of (mono, real) ns.
    """

    identity: SessionIdentity
    settings: dict[str, int]
    comms: np.ndarray
    records: np.ndarray
    losses: np.ndarray
    clock_pairs: np.ndarray
    is_sealed: bool
    tally: Tally
    number: int = 0


def read_segment(path: Path | str) -> SegmentData:
    """Everything a segment file holds; a torn tail and damaged frames are counted, not raised.

    Raises FormatError for a header that does not read and InputError for a file that cannot be.
    """
    with SegmentReader(path, piece_bytes=WHOLE_BYTES) as reader:
        batches = [*reader.poll(), *reader.finish()]
        return SegmentData(
            identity=reader.identity,
            settings=reader.header.settings,
            comms=reader.comms,
            records=batches[0] if len(batches) == 1 else np.concatenate([empty_batch(), *batches]),
            losses=reader.losses,
            clock_pairs=reader.clock_pairs,
            is_sealed=reader.is_sealed,
            tally=reader.tally,
            number=reader.number,
        )


class SegmentReader:
    """Reads one segment file while it may still grow; a rename does not disturb it.

    ``poll`` yields what is new, ``finish`` states that nothing will follow. ``identity``,
    ``comms``, ``losses``, ``clock_pairs``, ``is_sealed`` and ``tally`` tell the state so far;
    ``identity`` and ``header`` exist once ``has_header``.
    """

    def __init__(self, path: Path | str, *, piece_bytes: int = PIECE_BYTES) -> None:
        self.path = str(path)
        self.tally = Tally()
        self.losses = np.zeros((0, LOSS_REASONS), np.int64)
        self.is_sealed = False
        self.number = 0
        self._header: StreamHeader | None = None
        self._comm_parts: list[np.ndarray] = [np.zeros(0, COMM_DTYPE)]
        self._pairs: list[tuple[int, int]] = []
        self._scan = FrameScan(self.tally)
        self._position = 0  # of the first byte that is not consumed
        self._piece_bytes = piece_bytes
        self._descriptor = _open_regular(self.path)

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the file back; safe twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def has_header(self) -> bool:
        """Whether the header has been read."""
        return self._header is not None

    @property
    def header(self) -> StreamHeader:
        """The header with the newest identity and settings; FormatError while there is none."""
        if self._header is None:
            raise FormatError("the header is cut short", path=self.path)
        return self._header

    @property
    def identity(self) -> SessionIdentity:
        """Who writes, as last stated."""
        return self.header.identity

    @property
    def comms(self) -> np.ndarray:
        """The newest row of every communicator, by ``comm_index``."""
        rows = np.concatenate(self._comm_parts)
        newest_first = rows[::-1]
        _, first_at = np.unique(newest_first["comm_index"], return_index=True)
        self._comm_parts = [newest_first[first_at]]
        return self._comm_parts[0]

    @property
    def clock_pairs(self) -> np.ndarray:
        """(mono, real) ns of the header and of every frame, shape (n, 2)."""
        return np.array(self._pairs, np.int64).reshape(-1, 2)

    def poll(self) -> Iterator[np.ndarray]:
        """Batches of the records that became readable since the last poll, in file order."""
        piece_bytes = self._piece_bytes
        while len(buffer := self._read(piece_bytes)):
            before = self._position
            batch = self._take(buffer, is_final=False)
            if len(batch):
                yield batch
            if self._position == before:
                if len(buffer) < piece_bytes:
                    return
                piece_bytes *= 2  # one frame is larger than that

    def finish(self) -> Iterator[np.ndarray]:
        """The last batches; counts as torn what is no whole frame, since nothing will follow."""
        yield from self.poll()
        batch = self._take(self._read(WHOLE_BYTES), is_final=True)
        if len(batch):
            yield batch
        if self._header is None:
            raise FormatError("the header is cut short", path=self.path)

    def _read(self, most_bytes: int) -> np.ndarray:
        """What the file holds from the first byte not consumed yet.

        An unfinished frame is read again each time: a writer whose disk was full takes it back and
        writes another one in its place.
        """
        try:
            left_bytes = os.fstat(self._descriptor).st_size - self._position
            buffer = np.empty(max(0, min(left_bytes, most_bytes)), np.uint8)
            n_read = (
                os.preadv(self._descriptor, [buffer.data], self._position) if buffer.size else 0
            )
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=self.path) from error
        return buffer[:n_read]

    def _take(self, buffer: np.ndarray, *, is_final: bool) -> np.ndarray:
        """The records of ``buffer``; moves their payloads together in place, so that all frames of
        a piece are one array without a second allocation."""
        start = 0
        if self._header is None:
            start = self._take_header(buffer.data)
            if self._header is None:
                return empty_batch()
        filled_bytes = 0
        record_bytes = self.header.record_dtype.itemsize
        for frame in self._scan.frames(buffer.data, start, is_final=is_final):
            if frame.mono_ns > 0:
                self._pairs.append((frame.mono_ns, frame.real_ns))
            if frame.kind == FRAME_OPS and self._fits(frame, record_bytes):
                size_bytes = len(frame.payload)
                at = frame.payload_at
                buffer[filled_bytes : filled_bytes + size_bytes] = buffer[at : at + size_bytes]
                filled_bytes += size_bytes
            else:
                self._take_table(frame)
        self._position += self._scan.consumed
        return self._current(buffer[:filled_bytes])

    def _current(self, payload: np.ndarray) -> np.ndarray:
        rows = payload.view(self.header.record_dtype)
        records, n_bad = upgrade_records(rows)
        self.tally.add("segment_records_read", len(rows))
        self.tally.add("segment_records_bad", n_bad)
        return records

    def _take_table(self, frame: Frame) -> None:
        """Frames of low volume; other kinds are those of a newer minor version."""
        comm_dtype = self.header.comm_dtype
        row_bytes = LOSS_REASONS * _INT64_BYTES
        if frame.kind == FRAME_COMMS and self._fits(frame, comm_dtype.itemsize):
            rows, n_bad = upgrade_comms(np.frombuffer(frame.payload, comm_dtype))
            self._comm_parts.append(rows)
            self.tally.add("segment_rows_bad", n_bad)
        elif frame.kind == FRAME_LOSSES and self._fits(frame, row_bytes):
            table = np.frombuffer(frame.payload, "<i8").reshape(-1, LOSS_REASONS)
            self.losses = np.maximum(table, 0)
        elif frame.kind == FRAME_IDENTITY:
            self._take_identity(bytes(frame.payload))
        elif frame.kind == FRAME_END:
            self.is_sealed = True

    def _take_identity(self, payload: bytes) -> None:
        try:
            self._header = replace_identity(self.header, payload, path=self.path)
        except FormatError:
            self.tally.add("segment_frames_bad")

    def _fits(self, frame: Frame, item_bytes: int) -> bool:
        """Whether the payload is ``n_items`` whole items; counted as bad otherwise."""
        fits = len(frame.payload) == frame.n_items * item_bytes
        self.tally.add("segment_frames_bad", not fits)
        return fits

    def _take_header(self, data: memoryview) -> int:
        """Reads the header if ``data`` holds it; returns where the first frame starts."""
        magic = bytes(data[: len(SEGMENT_MAGIC)])
        if magic != SEGMENT_MAGIC[: len(magic)]:
            raise FormatError("this is no segment file", path=self.path)
        if len(data) < SEGMENT_HEADER_BYTES:
            return 0
        head = np.frombuffer(data[:SEGMENT_HEADER_BYTES], SEGMENT_HEADER_DTYPE)[0]
        if head["major"] != FORMAT_MAJOR:
            raise FormatError(
                f"segment format {head['major']}.{head['minor']} is unknown here",
                path=self.path,
                offset_bytes=len(SEGMENT_MAGIC),
                next_step=f"read it with a version of comminsight for format {head['major']}",
            )
        end = int(head["header_bytes"])
        json_bytes = int(head["json_bytes"])
        if (
            json_bytes > MAX_JSON_BYTES
            or not SEGMENT_HEADER_BYTES + json_bytes <= end <= _MAX_HEADER_BYTES
        ):
            raise FormatError("header sizes contradict", path=self.path, offset_bytes=12)
        if len(data) < end:
            return 0
        text = bytes(data[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + json_bytes])
        if zlib.crc32(text) != head["json_crc32"]:
            raise FormatError("header checksum is wrong", path=self.path, offset_bytes=20)
        self._set_header(text, head)
        return end

    def _set_header(self, text: bytes, head: np.void) -> None:
        header = parse_header_json(text, path=self.path, offset_bytes=SEGMENT_HEADER_BYTES)
        if header.record_dtype.itemsize != head["record_bytes"]:
            raise FormatError("record sizes contradict", path=self.path, offset_bytes=28)
        self._header = header
        self.number = int(head["segment_number"])
        self._pairs.append((int(head["created_mono_ns"]), int(head["created_real_ns"])))


def _open_regular(path: str) -> int:
    """A descriptor of a regular file; a pipe in its place must not block the reader."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"cannot be opened: {error.strerror}", path=path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError("is not a regular file", path=path)
    return descriptor
