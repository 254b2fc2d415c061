"""A whole segment file at once, for records that no recorder of ours wrote; see segment.py."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from comminsight.format.layout import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    FRAME_COMMS,
    FRAME_END,
    FRAME_MAGIC,
    FRAME_OPS,
    SEGMENT_HEADER_BYTES,
    SEGMENT_HEADER_DTYPE,
    SEGMENT_MAGIC,
)
from comminsight.model.event import COMM_DTYPE, OP_DTYPE
from comminsight.model.topology import SessionIdentity

FRAME_RECORDS = 1 << 16  # 8 MiB, half of what a reader takes in one frame
_FRAME = struct.Struct("<IB3xIIqqqI4x")
_NOT_IN_HEADER = ("session_id", "versions")


def segment_bytes(
    identity: SessionIdentity, ops: np.ndarray, comms: np.ndarray, settings: Mapping[str, int]
) -> Iterator[bytes]:
    """The file piece by piece: header, communicators, records, and the frame that seals it."""
    yield _header(identity, settings)
    if len(comms):
        yield from _frame(identity, FRAME_COMMS, comms)
    for begin in range(0, len(ops), FRAME_RECORDS):
        yield from _frame(identity, FRAME_OPS, ops[begin : begin + FRAME_RECORDS])
    yield from _frame(identity, FRAME_END, np.zeros(0, np.uint8))


def _header(identity: SessionIdentity, settings: Mapping[str, int]) -> bytes:
    stated = msgspec.structs.asdict(identity)
    text = msgspec.json.encode(
        {
            "layout": _layout(OP_DTYPE),
            "comm_layout": _layout(COMM_DTYPE),
            "identity": {k: v for k, v in stated.items() if k not in _NOT_IN_HEADER},
            "versions": identity.versions,
            "settings": settings,
        }
    )
    head = np.zeros(1, SEGMENT_HEADER_DTYPE)
    for name, value in (
        ("magic", SEGMENT_MAGIC), ("major", FORMAT_MAJOR), ("minor", FORMAT_MINOR),
        ("header_bytes", SEGMENT_HEADER_BYTES + len(text)), ("json_bytes", len(text)),
        ("json_crc32", zlib.crc32(text)), ("segment_number", 1),
        ("record_bytes", OP_DTYPE.itemsize), ("created_mono_ns", identity.created_mono_ns),
        ("created_real_ns", identity.created_real_ns),
    ):  # fmt: skip
        head[name] = value
    return head.tobytes() + text


def _layout(dtype: np.dtype[Any]) -> dict[str, Any]:
    fields: Mapping[str, Any] = dtype.fields or {}
    named = [[name, part[0].str.lstrip("|"), part[1]] for name, part in fields.items()]
    return {"record_bytes": dtype.itemsize, "fields": named}


def _frame(identity: SessionIdentity, kind: int, rows: np.ndarray) -> Iterator[bytes]:
    payload = np.ascontiguousarray(rows).tobytes()
    first_seq = int(rows["seq"][0]) if kind == FRAME_OPS else 0
    times = identity.created_mono_ns, identity.created_real_ns
    fields: tuple[int, ...] = (FRAME_MAGIC, kind, len(rows), len(payload), *times, first_seq)
    yield _FRAME.pack(*fields, zlib.crc32(payload, zlib.crc32(_FRAME.pack(*fields, 0))))
    yield payload
