"""The bytes of a segment file, put together from the layout tables."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from comminsight.format.layout import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    FRAME_COMMS,
    FRAME_END,
    FRAME_LOSSES,
    FRAME_MAGIC,
    FRAME_OPS,
    SEGMENT_MAGIC,
)
from comminsight.model.event import COMM_DTYPE, OP_DTYPE
from comminsight.model.topology import SessionIdentity
from tests.builders.records import identity as any_identity

SETTINGS = {
    "safe_window_ns": 20_000_000_000,
    "overdue_limit_ns": 60_000_000_000,
    "min_size_bytes": 0,
    "event_mask": 255,
}
IDENTITY_KEYS = (
    "run_id", "host", "boot_id", "pid", "pid_start_ticks", "global_rank", "local_rank",
    "world_size", "restart_count", "created_mono_ns", "created_real_ns",
)  # fmt: skip


def layout_of(dtype: np.dtype) -> dict[str, Any]:
    """The ``layout`` object of a record dtype."""
    fields = [
        [name, part[0].str.lstrip("|"), part[1]] for name, part in (dtype.fields or {}).items()
    ]
    return {"record_bytes": dtype.itemsize, "fields": fields}


def header_json(who: SessionIdentity | None = None, **replaced: Any) -> dict[str, Any]:
    """The identity JSON object; ``replaced`` overrides whole keys."""
    who = who or any_identity()
    return {
        "layout": layout_of(OP_DTYPE),
        "comm_layout": layout_of(COMM_DTYPE),
        "identity": {key: getattr(who, key) for key in IDENTITY_KEYS},
        "versions": who.versions,
        "environment": {},
        "settings": SETTINGS,
    } | replaced


def frame_bytes(
    kind: int, payload: bytes = b"", n_items: int = 0, first_seq: int = 0, mono_ns: int = 0
) -> bytes:
    """One frame with a right checksum."""
    fields = (FRAME_MAGIC, kind, n_items, len(payload), mono_ns, mono_ns + 10**18, first_seq)
    unchecked = struct.pack("<IB3xIIqqqI4x", *fields, 0)
    return (
        struct.pack("<IB3xIIqqqI4x", *fields, zlib.crc32(payload, zlib.crc32(unchecked))) + payload
    )


def segment_bytes(
    records: np.ndarray,
    comms: np.ndarray | None = None,
    who: SessionIdentity | None = None,
    *,
    losses: np.ndarray | None = None,
    sealed: bool = True,
    number: int = 1,
    frame_records: int = 512,
    major: int = FORMAT_MAJOR,
    header: dict[str, Any] | bytes | None = None,
) -> bytes:
    """A whole segment: header, communicator rows, records in frames, losses, END when sealed.

    ``header`` replaces the JSON object (or its bytes); the layout follows the dtype of ``records``.
    """
    who = who or any_identity()
    text = header if header is not None else header_json(who, layout=layout_of(records.dtype))
    json_bytes = text if isinstance(text, bytes) else json.dumps(text).encode()
    parts = [
        struct.pack(
            "<8sHHIIIIIqq16x", SEGMENT_MAGIC, major, FORMAT_MINOR, 64 + len(json_bytes),
            len(json_bytes), zlib.crc32(json_bytes), number, records.dtype.itemsize,
            who.created_mono_ns, who.created_real_ns,
        ),
        json_bytes,
    ]  # fmt: skip
    if comms is not None and len(comms):
        parts.append(frame_bytes(FRAME_COMMS, comms.tobytes(), len(comms)))
    for begin in range(0, len(records), frame_records):
        chunk = records[begin : begin + frame_records]
        first_seq = int(chunk["seq"][0])
        parts.append(frame_bytes(FRAME_OPS, chunk.tobytes(), len(chunk), first_seq, first_seq))
    if losses is not None:
        parts.append(frame_bytes(FRAME_LOSSES, losses.astype("<i8").tobytes(), len(losses)))
    if sealed:
        parts.append(frame_bytes(FRAME_END))
    return b"".join(parts)


def write_segment(directory: Path, data: bytes, *, number: int = 1, sealed: bool = True) -> Path:
    """Puts ``data`` where a recorder would: ``directory/000001.ciseg`` or ``.ciseg.open``."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{number:06d}.ciseg{'' if sealed else '.open'}"
    path.write_bytes(data)
    return path
