"""The bytes of a black box, put together from the layout tables."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from comminsight.format.layout import (
    BOX_BYTES,
    BOX_COMM_OFFSET,
    BOX_HEADER_BYTES,
    BOX_HEADER_DTYPE,
    BOX_JSON_OFFSET,
    BOX_LIVE,
    BOX_LOSS_OFFSET,
    BOX_MAGIC,
    BOX_RING_OFFSET,
    BOX_SLOT_OFFSET,
    COMM_CAPACITY,
    FORMAT_MAJOR,
    FORMAT_MINOR,
    LOSS_REASONS,
    RING_CAPACITY,
    SLOT_BYTES,
    SLOT_CAPACITY,
    SLOT_DTYPE,
    SLOT_IN_FLIGHT,
)
from comminsight.model.event import COMM_ROW_BYTES, OP_DTYPE, OP_RECORD_BYTES
from comminsight.model.ops import OpState
from comminsight.model.topology import SessionIdentity
from tests.builders.records import identity as any_identity
from tests.builders.segment import header_json

_FIXED = {
    "magic": BOX_MAGIC, "minor": FORMAT_MINOR, "header_bytes": BOX_HEADER_BYTES,
    "file_bytes": BOX_BYTES, "json_offset": BOX_JSON_OFFSET, "comm_offset": BOX_COMM_OFFSET,
    "comm_capacity": COMM_CAPACITY, "loss_offset": BOX_LOSS_OFFSET, "slot_offset": BOX_SLOT_OFFSET,
    "slot_capacity": SLOT_CAPACITY, "slot_bytes": SLOT_BYTES, "ring_offset": BOX_RING_OFFSET,
    "ring_capacity": RING_CAPACITY, "record_bytes": OP_RECORD_BYTES,
    "comm_row_bytes": COMM_ROW_BYTES, "loss_reasons": LOSS_REASONS,
}  # fmt: skip


@dataclass(frozen=True)
class InFlight:
    """An op in a slot; ``seq``, ``end_ns`` and ``state`` are set as a recorder would;
    ``slot`` gives other fields of ``SLOT_DTYPE``."""

    record: np.ndarray
    state: int = SLOT_IN_FLIGHT
    owner_tid: int = 77
    launch_ns: int = 0
    slot: dict[str, int] = field(default_factory=dict)


def box_bytes(
    ring: np.ndarray,
    comms: np.ndarray | None = None,
    who: SessionIdentity | None = None,
    *,
    in_flight: tuple[InFlight, ...] = (),
    losses: dict[tuple[int, int], int] | None = None,
    ring_head: int | None = None,
    state: int = BOX_LIVE,
    major: int = FORMAT_MAJOR,
    **header: Any,
) -> bytes:
    """A whole box. ``ring`` holds records with their ``seq``; ``losses[comm_index, reason]``.

    ``header`` overrides fields of the header page, after everything else is in place.
    """
    who = who or any_identity()
    data = bytearray(BOX_BYTES)
    text = json.dumps(header_json(who)).encode()
    data[BOX_JSON_OFFSET : BOX_JSON_OFFSET + len(text)] = text
    if comms is not None:
        data[BOX_COMM_OFFSET : BOX_COMM_OFFSET + comms.nbytes] = comms.tobytes()
    _put_losses(data, losses or {})
    _put_slots(data, in_flight)
    _put_ring(data, ring)
    newest = int(ring["seq"].max()) if len(ring) else 0
    values = {
        "major": major, "pid": who.pid, "pid_start_ticks": who.pid_start_ticks, "state": state,
        "boot_id": who.boot_id.encode(), "json_bytes": len(text),
        "created_mono_ns": who.created_mono_ns, "created_real_ns": who.created_real_ns,
        "pair_mono_ns": who.created_mono_ns, "pair_real_ns": who.created_real_ns,
        "ring_head": newest if ring_head is None else ring_head,
        "comm_count": 0 if comms is None else len(comms),
    }  # fmt: skip
    page = np.zeros(1, BOX_HEADER_DTYPE)
    for name, value in (_FIXED | values | header).items():
        page[name] = value
    data[:BOX_HEADER_BYTES] = page.tobytes()
    return bytes(data)


def _put_ring(data: bytearray, ring: np.ndarray) -> None:
    area = np.zeros(RING_CAPACITY, OP_DTYPE)
    area[(ring["seq"] - 1) % RING_CAPACITY] = ring
    data[BOX_RING_OFFSET : BOX_RING_OFFSET + area.nbytes] = area.tobytes()


def _put_losses(data: bytearray, losses: dict[tuple[int, int], int]) -> None:
    table = np.zeros((COMM_CAPACITY, LOSS_REASONS), "<i8")
    for (comm_index, reason), count in losses.items():
        table[comm_index, reason] = count
    data[BOX_LOSS_OFFSET : BOX_LOSS_OFFSET + table.nbytes] = table.tobytes()


def _put_slots(data: bytearray, in_flight: tuple[InFlight, ...]) -> None:
    slots = np.zeros(len(in_flight), SLOT_DTYPE)
    for slot, op in zip(slots, in_flight, strict=True):
        unfinished = op.record.copy()
        for name, value in (("seq", 0), ("seq_low", 0), ("end_ns", 0), ("state", OpState.OPEN)):
            unfinished[name] = value
        slot["record"] = unfinished[0]
        slot["state_word"] = 1 << 8 | op.state
        slot["owner_tid"] = op.owner_tid
        slot["launch_ns"] = op.launch_ns
        for name, value in op.slot.items():
            slot[name] = value
    data[BOX_SLOT_OFFSET : BOX_SLOT_OFFSET + slots.nbytes] = slots.tobytes()
