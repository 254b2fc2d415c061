"""A slice of records as they arrive: what each one is, and the watermark before it."""

from __future__ import annotations

import msgspec
import numpy as np

from comminsight.model.ops import OpFlag, OpState, RecordKind
from comminsight.model.records import is_change

NEVER_NS = -(1 << 62)


class OrderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Windows and bounds of the reorder stage.

    ``safe_window_ns`` must be the recorder's (its OPEN markers come at half of it). A hold ends
    after ``max_hold_age_ns`` of stream time, after ``max_hold_records`` further records, or when
    more than ``max_holds`` ops are open (the oldest goes). A start later than its record's own end
    plus ``start_tolerance_ns``, or than its enqueue plus ``max_start_lag_ns``, is corrupt.
    """

    safe_window_ns: int = 2_000_000_000
    push_window_ns: int = 250_000_000
    max_holds: int = 1024
    max_hold_age_ns: int = 900_000_000_000
    max_hold_records: int = 262_144
    start_tolerance_ns: int = 1_000_000_000
    max_start_lag_ns: int = 3_600_000_000_000


class ArrivalSlice:
    """Hot columns of one slice, contiguous, and what each record is."""

    __slots__ = (
        "before",
        "is_any_op",
        "is_op",
        "is_valid",
        "kind",
        "rows",
        "seq",
        "start",
        "state",
    )

    def __init__(self, rows: np.ndarray, settings: OrderSettings, watermark_ns: int) -> None:
        self.rows = rows
        self.start = np.ascontiguousarray(rows["start_ns"])
        self.seq = np.ascontiguousarray(rows["seq"])
        self.kind = np.ascontiguousarray(rows["kind"])
        self.state = np.ascontiguousarray(rows["state"])
        self.is_any_op = (self.kind == RecordKind.COLLECTIVE) | (self.kind == RecordKind.P2P)
        is_marker = (self.state == OpState.OPEN) | (self.state == OpState.OVERDUE)
        self.is_op = self.is_any_op & ~is_marker
        self.is_valid = self.is_op & ~self._is_bad(settings)
        self.before = np.empty(len(rows) + 1, np.int64)  # watermark before each record, and after
        self.before[0] = watermark_ns
        self.before[1:] = np.where(self.is_valid, self.start, NEVER_NS)
        np.maximum.accumulate(self.before, out=self.before)

    def _is_bad(self, settings: OrderSettings) -> np.ndarray:
        end = self.rows["end_ns"]
        enqueue = self.rows["enqueue_ns"]
        is_bad: np.ndarray = (self.start <= 0) | ((self.rows["flags"] & OpFlag.FUTURE_START) != 0)
        is_bad |= (end > 0) & (self.start - end > settings.start_tolerance_ns)
        is_bad |= (enqueue > 0) & (self.start - enqueue > settings.max_start_lag_ns)
        return is_bad

    @property
    def is_change(self) -> np.ndarray:
        """Records that tell of a change of what is recorded."""
        return is_change(self.rows)

    def hold_ns(self, index: int) -> int:
        """The earliest instant at which the op of an OPEN marker may turn out to have started: its
        start may be seen later, and then lies before the marker's (a kernel's own stamp)."""
        enqueue_ns = int(self.rows["enqueue_ns"][index])
        start_ns = int(self.start[index])
        return min(enqueue_ns, start_ns) if enqueue_ns > 0 else start_ns

    def keys(self) -> np.ndarray:
        """What identifies each record's op: communicator and program order."""
        keys: np.ndarray = self.rows["comm_index"].astype(np.int64) << 32 | self.rows["op_seq"]
        return keys

    def key(self, index: int) -> int:
        """The key of one record."""
        row = self.rows[index : index + 1]
        return int((row["comm_index"].astype(np.int64) << 32 | row["op_seq"])[0])

    def previous_start(self, index: int, carried_ns: int) -> int:
        """Start of the last valid op before ``index``."""
        valid = np.flatnonzero(self.is_valid[:index])
        return int(self.start[valid[-1]]) if len(valid) else carried_ns
