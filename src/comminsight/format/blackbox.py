"""The black box of one process, parsed from bytes.

A box may be written while it is read. Given two reads of the same file, only what is equal in both
is believed: a record of the ring, a slot, a row, a counter. Given one read, the sequence words
alone decide; that is for boxes nobody writes any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from comminsight.errors import FormatError
from comminsight.format.identity import MAX_JSON_BYTES, parse_header_json
from comminsight.format.layout import (
    BOX_CLOSED,
    BOX_CREATING,
    BOX_HEADER_BYTES,
    BOX_HEADER_DTYPE,
    BOX_MAGIC,
    FORMAT_MAJOR,
    LOSS_REASONS,
    SLOT_BYTES,
    SLOT_DTYPE,
    SLOT_ENDING,
    SLOT_IN_FLIGHT,
    SLOT_OVERDUE,
)
from comminsight.format.schema import convert_records, upgrade_comms, upgrade_records
from comminsight.model.event import COMM_DTYPE, OP_RECORD_BYTES
from comminsight.model.ops import OpState
from comminsight.model.records import is_ended_op
from comminsight.model.tally import Tally
from comminsight.model.topology import SessionIdentity

NCCL_PREFIX = "nccl_"

_STATE_BITS = 0xFF
_LOW_BITS = 0xFFFFFFFF
_INT64_BYTES = 8


@dataclass(frozen=True, slots=True)
class BoxData:
    """What a black box holds.

    ``ring`` are its completed records in ``seq`` order (OP_DTYPE); ``torn_seqs`` the numbers that
    should stand in the ring and do not read; records up to ``overwritten_seq`` have left it.
    ``in_flight`` are slots (SLOT_DTYPE) whose op has no end, oldest start first; their records
    have ``seq`` 0 and the state OPEN or OVERDUE. ``losses`` is ``(n_rows, LOSS_REASONS)``,
    row = comm_index. ``environment`` are the process's variables of the recorder's allowlist,
    ``nccl_counters`` what the NCCL door has counted, by name; empty where nothing was.
    """

    identity: SessionIdentity
    settings: dict[str, int]
    comms: np.ndarray
    losses: np.ndarray
    in_flight: np.ndarray
    ring: np.ndarray
    torn_seqs: np.ndarray
    overwritten_seq: int
    drained_seq: int
    is_closed: bool
    heartbeat_mono_ns: int
    clock_pair: tuple[int, int]
    tally: Tally
    environment: dict[str, str] = field(default_factory=dict)
    nccl_counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Area:
    """A table of the box: ``n_rows`` rows of ``row_bytes`` bytes from ``offset``."""

    offset: int
    n_rows: int
    row_bytes: int

    def rows(self, data: bytes) -> np.ndarray:
        """The rows as bytes, shape (n_rows, row_bytes)."""
        n_bytes = self.n_rows * self.row_bytes
        flat = np.frombuffer(data, np.uint8, count=n_bytes, offset=self.offset)
        return flat.reshape(self.n_rows, self.row_bytes)

    def is_stable(self, first: bytes, second: bytes) -> np.ndarray:
        """Which rows both reads agree on."""
        if first is second:
            return np.ones(self.n_rows, bool)
        before, after = self.rows(first), self.rows(second)
        if self.row_bytes % 8 == 0:
            before, after = before.view(np.uint64), after.view(np.uint64)
        agree: np.ndarray = (before == after).all(axis=1)
        return agree


def parse_box(first: bytes, second: bytes | None = None, *, path: str = "") -> BoxData:
    """The box in ``first``, restricted to what ``second`` (a later read) confirms.

    Raises FormatError for bytes that are no whole black box of this major version.
    """
    second = first if second is None else second
    head = _header(first, path)
    _check_areas(head, min(len(first), len(second)), path)
    begin = int(head["json_offset"])
    stated = parse_header_json(
        first[begin : begin + int(head["json_bytes"])], path=path, offset_bytes=begin
    )
    tally = Tally()
    ring, torn_seqs, overwritten_seq = _ring(head, first, second)
    ring = ring.view(stated.record_dtype)
    tally.add("ring_records_read", len(ring))
    numbers = ring["seq"]
    ring, n_bad = upgrade_records(ring)
    tally.add("segment_records_bad", n_bad)
    if n_bad:
        torn_seqs = np.union1d(torn_seqs, np.setdiff1d(numbers, ring["seq"]))
    return BoxData(
        identity=stated.identity,
        settings=stated.settings,
        comms=_comms(head, second, stated.comm_dtype, tally),
        losses=_losses(head, second),
        in_flight=_in_flight(head, first, second, stated.record_dtype, ring),
        ring=ring,
        torn_seqs=torn_seqs,
        overwritten_seq=overwritten_seq,
        drained_seq=int(head["drained_seq"]),
        is_closed=int(head["state"]) == BOX_CLOSED,
        heartbeat_mono_ns=int(head["heartbeat_mono_ns"]),
        clock_pair=(int(head["pair_mono_ns"]), int(head["pair_real_ns"])),
        tally=tally,
        environment=stated.environment,
        nccl_counters=_nccl_counters(second),
    )


def _header(data: bytes, path: str) -> Any:
    if data[: len(BOX_MAGIC)] != BOX_MAGIC:
        raise FormatError("this is no black box", path=path)
    if len(data) < BOX_HEADER_BYTES:
        raise FormatError("the black box is cut short", path=path, offset_bytes=len(data))
    head = np.frombuffer(data[:BOX_HEADER_BYTES], BOX_HEADER_DTYPE)[0]
    if head["major"] != FORMAT_MAJOR:
        raise FormatError(
            f"black box format {head['major']}.{head['minor']} is unknown here",
            path=path,
            offset_bytes=len(BOX_MAGIC),
            next_step=f"read it with a version of comminsight for format {head['major']}",
        )
    if head["state"] == BOX_CREATING:
        message = "the black box is still being created, or its process died doing so"
        raise FormatError(message, path=path, offset_bytes=60)
    return head


def _areas(head: Any) -> dict[str, _Area]:
    comm_capacity, loss_bytes = int(head["comm_capacity"]), int(head["loss_reasons"]) * _INT64_BYTES
    return {
        "json": _Area(int(head["json_offset"]), 1, int(head["json_bytes"])),
        "comm": _Area(int(head["comm_offset"]), comm_capacity, int(head["comm_row_bytes"])),
        "loss": _Area(int(head["loss_offset"]), comm_capacity, loss_bytes),
        "slot": _Area(
            int(head["slot_offset"]), int(head["slot_capacity"]), int(head["slot_bytes"])
        ),
        "ring": _Area(
            int(head["ring_offset"]), int(head["ring_capacity"]), int(head["record_bytes"])
        ),
    }


def _check_areas(head: Any, size_bytes: int, path: str) -> None:
    """Every table lies inside the file, so that no later slice is short."""
    for name, area in _areas(head).items():
        end = area.offset + area.n_rows * area.row_bytes
        if area.row_bytes == 0 or area.n_rows == 0 or end > size_bytes:
            message = f"the {name} table ends at byte {end} of {size_bytes}"
            raise FormatError(message, path=path, offset_bytes=area.offset)
    sizes = (int(head["record_bytes"]), int(head["slot_bytes"]), int(head["loss_reasons"]))
    is_known = sizes[0] == OP_RECORD_BYTES and sizes[1] >= SLOT_BYTES and sizes[2] >= LOSS_REASONS
    if not is_known or head["json_bytes"] > MAX_JSON_BYTES:
        raise FormatError(f"unknown table sizes {sizes}", path=path, offset_bytes=136)


def _ring(head: Any, first: bytes, second: bytes) -> tuple[np.ndarray, np.ndarray, int]:
    """Bytes of the sound records in ``seq`` order, numbers that do not read, newest number gone.

    Record ``s`` (counted from 1) stands at ``(s - 1) % capacity``; its last word repeats the low
    half of ``s``. The window ends at the head of the first read, since later numbers are newer
    records and not damage, and begins above what was overwritten by the time of the second.
    """
    area = _areas(head)["ring"]
    rows, is_stable = area.rows(first), area.is_stable(first, second)
    words = rows.view("<u4")
    seq = np.ascontiguousarray(words[:, :2]).view("<i8")[:, 0]
    is_in_place = (seq - 1) % area.n_rows == np.arange(area.n_rows)
    is_sound = is_stable & (seq > 0) & is_in_place & ((seq & _LOW_BITS) == words[:, -1])
    later = np.frombuffer(second[:BOX_HEADER_BYTES], BOX_HEADER_DTYPE)[0]
    overwritten_seq = max(0, int(later["ring_head"]) - area.n_rows)
    is_sound &= seq > overwritten_seq
    newest = int(head["ring_head"])
    window = np.arange(max(overwritten_seq, newest - area.n_rows) + 1, newest + 1)
    torn_seqs = np.setdiff1d(window, seq[is_sound], assume_unique=True)
    kept = np.flatnonzero(is_sound)
    return rows[kept[np.argsort(seq[kept])]].reshape(-1), torn_seqs, overwritten_seq


def _in_flight(
    head: Any, first: bytes, second: bytes, record_dtype: np.dtype[Any], ring: np.ndarray
) -> np.ndarray:
    """Slots whose op had not ended, oldest start first; their records in the current layout.

    A slot that stays ENDING over both reads without its record in the ring belongs to a thread that
    was killed (or is held up) in between: nobody has recorded an end of its op.
    """
    area = _areas(head)["slot"]
    rows, is_stable = area.rows(first), area.is_stable(first, second)
    slots = np.ascontiguousarray(rows[:, :SLOT_BYTES]).view(SLOT_DTYPE)[:, 0]
    state = slots["state_word"] & _STATE_BITS
    is_open = (state == SLOT_IN_FLIGHT) | (state == SLOT_OVERDUE)
    is_open |= (state == SLOT_ENDING) & ~_is_recorded(slots["record"], ring)
    kept = np.flatnonzero(is_stable & is_open)
    records = np.ascontiguousarray(rows[kept, :OP_RECORD_BYTES]).reshape(-1).view(record_dtype)
    slots = slots[kept]
    slots["record"] = convert_records(records)
    is_overdue = state[kept] == SLOT_OVERDUE
    slots["record"]["state"] = np.where(is_overdue, OpState.OVERDUE, OpState.OPEN)
    return slots[np.argsort(slots["record"]["start_ns"], kind="stable")]


def _is_recorded(records: np.ndarray, ring: np.ndarray) -> np.ndarray:
    """Which ops have their final record in the ring."""
    final = ring[is_ended_op(ring)]
    key = final["comm_index"].astype(np.int64) << 32 | final["op_seq"]
    own = records["comm_index"].astype(np.int64) << 32 | records["op_seq"]
    found: np.ndarray = np.isin(own, key)
    return found


def _comms(head: Any, data: bytes, comm_dtype: np.dtype[Any], tally: Tally) -> np.ndarray:
    """The published rows; a row does not change after publication but for two single words."""
    area = _areas(head)["comm"]
    n_bytes = min(int(head["comm_count"]), area.n_rows) * area.row_bytes
    if comm_dtype.itemsize != area.row_bytes:
        return np.zeros(0, COMM_DTYPE)
    rows, n_bad = upgrade_comms(
        np.frombuffer(data[area.offset : area.offset + n_bytes], comm_dtype)
    )
    tally.add("segment_rows_bad", n_bad)
    return rows


def _nccl_counters(data: bytes) -> dict[str, int]:
    """Counters of the header page above zero, without their prefix."""
    head = np.frombuffer(data[:BOX_HEADER_BYTES], BOX_HEADER_DTYPE)[0]
    names = [name for name in BOX_HEADER_DTYPE.names or () if name.startswith(NCCL_PREFIX)]
    counts = {name.removeprefix(NCCL_PREFIX): int(head[name]) for name in names}
    return {name: n for name, n in counts.items() if n > 0}


def _losses(head: Any, data: bytes) -> np.ndarray:
    """Loss counters of row 0 and of every published communicator that has a row of its own."""
    area = _areas(head)["loss"]
    n_rows = min(int(head["comm_count"]) + 1, area.n_rows)
    table = np.frombuffer(data[area.offset : area.offset + n_rows * area.row_bytes], "<i8")
    counts: np.ndarray = table.reshape(n_rows, -1)[:, :LOSS_REASONS]
    return counts.clip(min=0)
