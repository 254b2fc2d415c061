"""Segments and black boxes with other texts in them: the same records, checksums right again.

Texts stand in the header's JSON, in identity frames and in the names of communicators. What is of
no known form may hold a text nobody looks at, so it becomes zeros of the same length: a reader
counts the same bytes as lost, and nothing of it can be read.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from comminsight.errors import FormatError
from comminsight.format.blackbox import parse_box
from comminsight.format.document import UNREADABLE
from comminsight.format.frames import Frame, FrameScan
from comminsight.format.identity import parse_header_json
from comminsight.format.layout import (
    BOX_HEADER_BYTES,
    BOX_HEADER_DTYPE,
    FRAME_COMMS,
    FRAME_END,
    FRAME_HEADER_BYTES,
    FRAME_IDENTITY,
    FRAME_LOSSES,
    FRAME_MAGIC,
    FRAME_OPS,
    SEGMENT_HEADER_BYTES,
    SEGMENT_HEADER_DTYPE,
    SEGMENT_MAGIC,
)
from comminsight.model.tally import Tally

Rewrite = Callable[[str, str], str]  # (key, text) -> text

UNTOUCHED = frozenset({"layout", "comm_layout", "boot_id", "session_id"})
_FIELD = re.compile(r"[a-z_]{1,64}", re.ASCII)
_FRAME = struct.Struct("<IB3xIIqqqI4x")


def rewritten(value: Any, rewrite: Rewrite, key: str = "") -> Any:
    """A JSON document with every text in it rewritten; texts in a list have the list's key."""
    if isinstance(value, str):
        return rewrite(key, value)
    if isinstance(value, dict):
        return {
            _key(name, rewrite): (
                inner if name in UNTOUCHED else rewritten(inner, rewrite, str(name))
            )
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [rewritten(inner, rewrite, key) for inner in value]
    return value


def _key(name: Any, rewrite: Rewrite) -> Any:
    """Names of fields are ours or the format's; of other keys nobody knows."""
    is_text = isinstance(name, str) and not _FIELD.fullmatch(name)
    return rewrite("", name) if is_text else name


def rewritten_json(data: bytes, rewrite: Rewrite, *, path: str = "") -> bytes:
    """The same for bytes; raises FormatError for what is no JSON."""
    try:
        return msgspec.json.encode(rewritten(msgspec.json.decode(data), rewrite))
    except UNREADABLE as error:
        raise FormatError(f"no JSON: {error}", path=path) from error


# segments


def rewritten_segment(data: bytes, rewrite: Rewrite, *, path: str = "") -> bytes:
    """A segment file with its texts rewritten; raises FormatError where its header does not read.

    Frames keep their order, number and times. Bytes between sound frames become zeros, as does
    what a frame of an unknown kind holds.
    """
    head, text = _segment_header(data, path)
    stated = parse_header_json(text, path=path, offset_bytes=SEGMENT_HEADER_BYTES)
    parts = [_segment_head(head, rewritten_json(text, rewrite, path=path))]
    done = int(head["header_bytes"])
    scan = FrameScan(Tally())
    for frame in scan.frames(memoryview(data), done, is_final=True):
        begin = frame.payload_at - FRAME_HEADER_BYTES
        parts += [_blank(data, done, begin), _frame(frame, rewrite, stated.comm_dtype)]
        done = frame.payload_at + len(frame.payload)
    parts.append(_blank(data, done, len(data)))
    return b"".join(parts)


def _segment_header(data: bytes, path: str) -> tuple[Any, bytes]:
    if len(data) < SEGMENT_HEADER_BYTES or not data.startswith(SEGMENT_MAGIC):
        raise FormatError("this is no segment file", path=path)
    head = np.frombuffer(data[:SEGMENT_HEADER_BYTES], SEGMENT_HEADER_DTYPE)[0]
    end = SEGMENT_HEADER_BYTES + int(head["json_bytes"])
    text = data[SEGMENT_HEADER_BYTES:end]
    if zlib.crc32(text) != head["json_crc32"] or not end <= head["header_bytes"] <= len(data):
        raise FormatError("header checksum is wrong", path=path, offset_bytes=20)
    return head, text


def _segment_head(head: Any, text: bytes) -> bytes:
    fresh = np.zeros(1, SEGMENT_HEADER_DTYPE)
    for name in SEGMENT_HEADER_DTYPE.names or ():
        fresh[name] = head[name]
    fresh["header_bytes"] = SEGMENT_HEADER_BYTES + len(text)
    fresh["json_bytes"], fresh["json_crc32"] = len(text), zlib.crc32(text)
    return fresh.tobytes() + text


def _frame(frame: Frame, rewrite: Rewrite, comm_dtype: np.dtype[Any]) -> bytes:
    payload = bytes(frame.payload)
    if frame.kind == FRAME_IDENTITY:
        payload = _identity(payload, rewrite)
    elif frame.kind == FRAME_COMMS:
        payload = _rows(payload, rewrite, comm_dtype)
    elif frame.kind not in {FRAME_OPS, FRAME_LOSSES, FRAME_END}:
        payload = bytes(len(payload))
    fields = (
        FRAME_MAGIC, frame.kind, frame.n_items, len(payload), frame.mono_ns, frame.real_ns,
        frame.first_seq,
    )  # fmt: skip
    crc = zlib.crc32(payload, zlib.crc32(_FRAME.pack(*fields, 0)))
    return _FRAME.pack(*fields, crc) + payload


def _identity(payload: bytes, rewrite: Rewrite) -> bytes:
    try:
        return rewritten_json(payload, rewrite)
    except FormatError:  # a reader counts it as bad, with any content
        return bytes(len(payload))


def _rows(payload: bytes, rewrite: Rewrite, dtype: np.dtype[Any]) -> bytes:
    """Communicator rows; a payload that is not of whole rows is none that a reader takes."""
    if len(payload) % dtype.itemsize:
        return bytes(len(payload))
    rows = np.frombuffer(payload, dtype)
    fresh = np.zeros(len(rows), dtype)
    for name in dtype.names or ():
        fresh[name] = rows[name]
        if dtype[name].kind == "S":
            fresh[name] = [
                rewrite(name, text.decode("utf-8", "replace")).encode()
                if text else text
                for text in rows[name].tolist()
            ]  # fmt: skip
    return fresh.tobytes()


def _blank(data: bytes, begin: int, end: int) -> bytes:
    """What lies between sound frames, as zeros of the same length. That a frame began there and was
    cut short is told by its magic and its size alone."""
    n_bytes = end - begin
    magic = FRAME_MAGIC.to_bytes(4, "little")
    if data[begin:end][:4] != magic[:n_bytes]:
        return bytes(n_bytes)
    if n_bytes < FRAME_HEADER_BYTES:
        return (magic + bytes(FRAME_HEADER_BYTES))[:n_bytes]
    size_bytes = _FRAME.unpack_from(data, begin)[3]
    head = _FRAME.pack(FRAME_MAGIC, 0, 0, size_bytes, 0, 0, 0, 0)
    return head + bytes(n_bytes - FRAME_HEADER_BYTES)


# black boxes


def rewritten_box(first: bytes, second: bytes | None, rewrite: Rewrite, *, path: str = "") -> bytes:
    """A black box with its texts rewritten, as nobody writes it any more: rows that differ between
    two reads of a living one are empty. Raises FormatError for what is no whole box."""
    data = first if second is None else second
    parse_box(first, data, path=path)
    head = np.frombuffer(data[:BOX_HEADER_BYTES], BOX_HEADER_DTYPE)[0]
    begin, end = int(head["json_offset"]), int(head["json_offset"]) + int(head["json_bytes"])
    stated = parse_header_json(data[begin:end], path=path, offset_bytes=begin)
    text = _fitting(data[begin:end], rewrite, _json_room(head, begin, len(data)), path)
    fresh = bytearray(len(data))
    fresh[:BOX_HEADER_BYTES] = _box_head(head, len(text))
    fresh[begin : begin + len(text)] = text
    _copy_rows(fresh, head, data, rewrite, stated.comm_dtype)
    for name, rows, row_bytes in (
        ("loss", "comm_capacity", int(head["loss_reasons"]) * 8),
        ("slot", "slot_capacity", int(head["slot_bytes"])),
        ("ring", "ring_capacity", int(head["record_bytes"])),
    ):
        _copy_stable(fresh, first, data, int(head[f"{name}_offset"]), int(head[rows]), row_bytes)
    return bytes(fresh)


def _json_room(head: Any, begin: int, size_bytes: int) -> int:
    """Bytes that the JSON may take up to the next table."""
    offsets = [int(head[f"{name}_offset"]) for name in ("comm", "loss", "slot", "ring")]
    return min([offset for offset in offsets if offset > begin], default=size_bytes) - begin


def _fitting(text: bytes, rewrite: Rewrite, room_bytes: int, path: str) -> bytes:
    fresh = rewritten_json(text, rewrite, path=path)
    if len(fresh) > room_bytes:
        fresh = msgspec.json.encode({**msgspec.json.decode(fresh), "environment": {}})
    if len(fresh) > room_bytes:
        raise FormatError("the rewritten header does not fit", path=path)
    return fresh


def _box_head(head: Any, json_bytes: int) -> bytes:
    fresh = np.zeros(1, BOX_HEADER_DTYPE)
    for name in BOX_HEADER_DTYPE.names or ():
        fresh[name] = head[name]
    fresh["json_bytes"] = json_bytes
    return fresh.tobytes()


def _copy_rows(
    fresh: bytearray, head: Any, data: bytes, rewrite: Rewrite, dtype: np.dtype[Any]
) -> None:
    row_bytes = int(head["comm_row_bytes"])
    if dtype.itemsize != row_bytes:
        return  # a reader takes none of them either
    begin = int(head["comm_offset"])
    end = begin + min(int(head["comm_count"]), int(head["comm_capacity"])) * row_bytes
    fresh[begin:end] = _rows(data[begin:end], rewrite, dtype)


def _copy_stable(
    fresh: bytearray, first: bytes, second: bytes, offset: int, n_rows: int, row_bytes: int
) -> None:
    """The rows of a table that both reads agree on."""
    end = offset + n_rows * row_bytes
    before = np.frombuffer(first[offset:end], np.uint8).reshape(n_rows, row_bytes)
    after = np.frombuffer(second[offset:end], np.uint8).reshape(n_rows, row_bytes)
    is_stable = (before == after).all(axis=1)
    fresh[offset:end] = np.where(is_stable[:, None], after, 0).tobytes()
