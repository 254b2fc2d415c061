"""Frames of a segment: find the next sound one, and account for every byte passed over.

Work on hostile input is bounded: a frame is at most ``MAX_PAYLOAD_BYTES``, and once checksums of
frames that turned out bad have cost ``WASTE_FACTOR`` times the buffer, the rest is given up.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from comminsight.format.layout import FRAME_HEADER_BYTES, FRAME_MAGIC
from comminsight.model.tally import Tally

MAX_PAYLOAD_BYTES = 16 << 20
WASTE_FACTOR = 8

_HEADER = struct.Struct("<IB3xIIqqqI4x")
_MAGIC = FRAME_MAGIC.to_bytes(4, "little")
_CRC_AT = 40
_WINDOW_BYTES = 1 << 16


class Frame(NamedTuple):
    """A sound frame; ``payload`` is a view of the scanned buffer."""

    kind: int
    n_items: int
    mono_ns: int
    real_ns: int
    first_seq: int
    payload: memoryview
    payload_at: int


class FrameScan:
    """Iterates over the sound frames of a stream given in pieces; counts the rest in ``tally``.

    ``consumed`` is where, in the buffer last given to ``frames``, the next piece has to begin.
    """

    def __init__(self, tally: Tally) -> None:
        self.consumed = 0
        self._tally = tally
        self._is_lost = False  # inside bytes that belong to no sound frame
        self._buffer = memoryview(b"")
        self._waste_left_bytes = 0

    def frames(self, buffer: memoryview, start: int, *, is_final: bool) -> Iterator[Frame]:
        """The sound frames of ``buffer`` from ``start``.

        With ``is_final`` false an incomplete frame at the end is left for the next piece. The
        frames and counts do not depend on how the stream was cut into pieces.
        """
        self.consumed, self._buffer = start, buffer
        self._waste_left_bytes = WASTE_FACTOR * len(buffer) + MAX_PAYLOAD_BYTES
        while self.consumed < len(buffer):
            frame = self._frame_at(self.consumed)
            if frame is not None:
                self.consumed = frame.payload_at + len(frame.payload)
                self._is_lost = False
                yield frame
            elif not self._is_unfinished(self.consumed):
                self._pass_over(is_final=is_final)
            elif not is_final:
                return
            elif self._is_lost or self._has_sound_frame_after(self.consumed):
                self._pass_over(is_final=True)
            else:
                self._tally.add("segment_frames_torn")
                self.consumed = len(buffer)

    def _frame_at(self, at: int) -> Frame | None:
        """The frame at byte ``at`` if it is complete and its checksum is right."""
        payload_at = at + FRAME_HEADER_BYTES
        if len(self._buffer) < payload_at or self._waste_left_bytes <= 0:
            return None
        magic, kind, n_items, size_bytes, mono_ns, real_ns, first_seq, crc = _HEADER.unpack_from(
            self._buffer, at
        )
        payload = self._buffer[payload_at : payload_at + size_bytes]
        if magic != FRAME_MAGIC or size_bytes > MAX_PAYLOAD_BYTES or len(payload) < size_bytes:
            return None
        head = bytearray(self._buffer[at:payload_at])
        head[_CRC_AT : _CRC_AT + 4] = bytes(4)
        if zlib.crc32(payload, zlib.crc32(head)) != crc:
            self._waste_left_bytes -= size_bytes
            return None
        return Frame(kind, n_items, mono_ns, real_ns, first_seq, payload, payload_at)

    def _is_unfinished(self, at: int) -> bool:
        """Whether the bytes at ``at`` could become a frame if more followed."""
        left_bytes = len(self._buffer) - at
        if left_bytes < FRAME_HEADER_BYTES:
            return bytes(self._buffer[at : at + 4]) == _MAGIC[:left_bytes]
        magic, _, _, size_bytes, *_ = _HEADER.unpack_from(self._buffer, at)
        is_short = left_bytes - FRAME_HEADER_BYTES < size_bytes
        return bool(magic == FRAME_MAGIC and size_bytes <= MAX_PAYLOAD_BYTES and is_short)

    def _pass_over(self, *, is_final: bool) -> None:
        """Moves to the next frame magic, or to the end less what may be the start of one."""
        if not self._is_lost:
            self._tally.add("segment_frames_bad")
            self._is_lost = True
        target = self._find_magic(self.consumed + 1)
        if target < 0:
            kept_bytes = 0 if is_final else len(_MAGIC) - 1
            target = max(self.consumed + 1, len(self._buffer) - kept_bytes)
        self._tally.add("segment_bytes_skipped", target - self.consumed)
        self.consumed = target

    def _has_sound_frame_after(self, at: int) -> bool:
        found = self._find_magic(at + 1)
        while found >= 0:
            if self._frame_at(found) is not None:
                return True
            found = self._find_magic(found + 1)
        return False

    def _find_magic(self, start: int) -> int:
        """Offset of the next frame magic at or after ``start``; -1 if there is none."""
        for begin in range(start, len(self._buffer), _WINDOW_BYTES):
            window = bytes(self._buffer[begin : begin + _WINDOW_BYTES + len(_MAGIC) - 1])
            found = window.find(_MAGIC)
            if found >= 0:
                return begin + found
        return -1
