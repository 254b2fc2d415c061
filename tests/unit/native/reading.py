"""An independent reader of boxes and segments: frombuffer, crc32, and checks of every frame."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from comminsight.format import layout
from comminsight.model.event import COMM_DTYPE, OP_DTYPE


@dataclass
class Stream:
    """What the segments of one session say together."""

    identities: list[dict] = field(default_factory=list)
    frame_types: list[int] = field(default_factory=list)
    batches: list[np.ndarray] = field(default_factory=lambda: [np.empty(0, OP_DTYPE)])
    comms: np.ndarray = field(default_factory=lambda: np.empty(0, COMM_DTYPE))
    losses: np.ndarray | None = None
    files: list[Path] = field(default_factory=list)
    n_torn: int = 0

    @cached_property
    def records(self):
        whole = np.concatenate(self.batches)
        assert (np.diff(whole["seq"]) > 0).all()
        assert (whole["seq"] & 0xFFFFFFFF == whole["seq_low"]).all()
        return whole

    @cached_property
    def ops(self):
        return self.records[np.isin(self.records["kind"], (1, 2))]

    def of(self, comm, state=3):
        ops = self.ops
        return ops[(ops["comm_index"] == comm) & (ops["state"] == state)]


def dtype_of(stated):
    """The record dtype as the header states it."""
    names, formats, offsets = zip(*stated["fields"], strict=True)
    spec = {"names": names, "formats": formats, "offsets": offsets}
    return np.dtype(spec | {"itemsize": stated["record_bytes"]})


def read_session(directory):
    """All segments of one session directory, in order."""
    stream = Stream()
    for path in sorted(Path(directory).iterdir()):
        if path.is_file():
            read_segment(path, stream)
            stream.files.append(path)
    return stream


def read_segment(path, stream):
    data = path.read_bytes()
    header = np.frombuffer(data, layout.SEGMENT_HEADER_DTYPE, 1)[0]
    text = data[64 : 64 + int(header["json_bytes"])]
    assert header["magic"] == layout.SEGMENT_MAGIC
    assert header["segment_number"] == int(path.name[:6])
    assert zlib.crc32(text) == header["json_crc32"]
    identity = json.loads(text)
    assert dtype_of(identity["layout"]) == OP_DTYPE
    assert dtype_of(identity["comm_layout"]) == COMM_DTYPE
    stream.identities.append(identity)
    at, known = int(header["header_bytes"]), set()
    last_type = 0
    while at < len(data):
        frame = np.frombuffer(data, layout.FRAME_HEADER_DTYPE, 1, at)[0]
        size = 48 + int(frame["payload_bytes"])
        whole = bytearray(data[at : at + size])
        if len(whole) < size and path.suffix == ".open":
            stream.n_torn += 1  # the writer died in the middle of a write
            break
        assert len(whole) == size, "torn frame in a sealed segment"
        whole[40:44] = bytes(4)
        assert zlib.crc32(whole) == frame["crc32"]
        last_type = int(frame["type"])
        take_frame(stream, frame, data[at + 48 : at + size], known)
        at += size
    assert (last_type == layout.FRAME_END) == path.name.endswith(".ciseg")


def take_frame(stream, frame, payload, known):
    kind, n_items = int(frame["type"]), int(frame["n_items"])
    stream.frame_types.append(kind)
    if kind == layout.FRAME_OPS:
        records = np.frombuffer(payload, OP_DTYPE)
        assert 0 < len(records) == n_items <= 512
        assert records["seq"][0] == frame["first_seq"]
        assert set(np.unique(records["comm_index"]).tolist()) <= known | {0}
        stream.batches.append(records)
    elif kind == layout.FRAME_COMMS:
        rows = np.frombuffer(payload, COMM_DTYPE)
        known.update(rows["comm_index"].tolist())
        kept = stream.comms[~np.isin(stream.comms["comm_index"], rows["comm_index"])]
        stream.comms = np.sort(np.concatenate([kept, rows]), order="comm_index")
    elif kind == layout.FRAME_LOSSES:
        stream.losses = np.frombuffer(payload, "<i8").reshape(n_items, layout.LOSS_REASONS)
    elif kind == layout.FRAME_IDENTITY:
        stream.identities.append(json.loads(payload))
    else:
        assert kind == layout.FRAME_END
        assert not payload


@dataclass
class Box:
    """A black box as it lies in its file."""

    header: np.void
    identity: dict
    comms: np.ndarray
    losses: np.ndarray
    slots: np.ndarray
    ring: np.ndarray

    @property
    def in_flight(self):
        return self.slots[np.isin(self.slots["state_word"] & 255, (2, 3))]


def read_box(path):
    data = Path(path).read_bytes()
    assert len(data) == layout.BOX_BYTES
    header = np.frombuffer(data, layout.BOX_HEADER_DTYPE, 1)[0]
    begin = int(header["json_offset"])
    comms = np.frombuffer(data, COMM_DTYPE, layout.COMM_CAPACITY, layout.BOX_COMM_OFFSET)
    losses = np.frombuffer(data, "<i8", layout.COMM_CAPACITY * 16, layout.BOX_LOSS_OFFSET)
    slots = np.frombuffer(data, layout.SLOT_DTYPE, layout.SLOT_CAPACITY, layout.BOX_SLOT_OFFSET)
    ring = np.frombuffer(data, OP_DTYPE, layout.RING_CAPACITY, layout.BOX_RING_OFFSET)
    return Box(
        header,
        json.loads(data[begin : begin + int(header["json_bytes"])]),
        comms[: int(header["comm_count"])],
        losses.reshape(-1, 16),
        slots,
        np.sort(ring[ring["seq"] > 0], order="seq"),
    )
