"""A slice of records as they arrive: what each one is, and the watermark before it."""

from __future__ import annotations

import msgspec
import numpy as np

from comminsight.model.ops import OpFlag, OpState, RecordKind
from comminsight.model.records import is_change

NEVER_NS = -(1 << 62)
_FOREVER_NS = 1 << 62
_BLOCK = 128  # records of which the least and the largest start are compared at once
# plain numbers: numpy compares enumerations slowly
_COLLECTIVE, _P2P, _DRAIN = map(int, (RecordKind.COLLECTIVE, RecordKind.P2P, RecordKind.DRAIN))
_OPEN, _OVERDUE, _FUTURE_START = int(OpState.OPEN), int(OpState.OVERDUE), int(OpFlag.FUTURE_START)


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
        "_before_ns", "_settings", "_watermark_ns", "is_all_ops", "is_any_op", "is_drain", "is_op",
        "is_open", "is_overdue", "is_valid", "kind", "rows", "seq", "start_ns", "state",
    )  # fmt: skip

    def __init__(self, rows: np.ndarray, settings: OrderSettings, watermark_ns: int) -> None:
        self.rows = rows
        self.start_ns = np.ascontiguousarray(rows["start_ns"])
        self.seq = np.ascontiguousarray(rows["seq"])
        self.kind = np.ascontiguousarray(rows["kind"])
        self.state = np.ascontiguousarray(rows["state"])
        self.is_any_op = (self.kind == _COLLECTIVE) | (self.kind == _P2P)
        self.is_open = self.is_any_op & (self.state == _OPEN)
        self.is_overdue = self.is_any_op & (self.state == _OVERDUE)
        self.is_drain = self.kind == _DRAIN
        self.is_op = self.is_any_op & ~(self.is_open | self.is_overdue)
        self.is_all_ops = bool(self.is_op.all())
        self.is_valid = self.is_op & ~self._is_bad(settings)
        self._settings, self._watermark_ns = settings, watermark_ns
        self._before_ns: np.ndarray | None = None

    def _is_bad(self, settings: OrderSettings) -> np.ndarray:
        end_ns, enqueue_ns = map(
            np.ascontiguousarray, (self.rows["end_ns"], self.rows["enqueue_ns"])
        )
        is_bad: np.ndarray = (self.start_ns <= 0) | ((self.rows["flags"] & _FUTURE_START) != 0)
        is_bad |= (end_ns > 0) & (self.start_ns - end_ns > settings.start_tolerance_ns)
        is_bad |= (enqueue_ns > 0) & (self.start_ns - enqueue_ns > settings.max_start_lag_ns)
        return is_bad

    @property
    def before_ns(self) -> np.ndarray:
        """The watermark before each record, and behind the last."""
        if self._before_ns is None:
            self._before_ns = np.empty(len(self.rows) + 1, np.int64)
            self._before_ns[0] = self._watermark_ns
            self._before_ns[1:] = self._valid_starts(NEVER_NS)
            np.maximum.accumulate(self._before_ns, out=self._before_ns)
        return self._before_ns

    @property
    def newest_ns(self) -> int:
        """The watermark behind the last record."""
        return max(self._watermark_ns, int(self._valid_starts(NEVER_NS).max(initial=NEVER_NS)))

    def may_be_late(self, floor_ns: int) -> bool:
        """False where no op starts before the cut at it, as far as a glance at blocks of records
        tells; ``floor_ns`` is the cut at the first. No hold may be in force."""
        blocks = np.arange(0, len(self.rows), _BLOCK)
        newest = np.maximum.reduceat(self._valid_starts(NEVER_NS), blocks)
        newest[0] = max(int(newest[0]), self._watermark_ns)
        np.maximum.accumulate(newest, out=newest)
        cuts = np.maximum(newest - self._settings.safe_window_ns, floor_ns)
        return bool((np.minimum.reduceat(self._valid_starts(_FOREVER_NS), blocks) < cuts).any())

    def follows(self, seq: int) -> bool:
        """Whether the numbers of the records are those behind ``seq``, none missing."""
        n = len(self.seq)
        if int(self.seq[0]) != seq + 1 or int(self.seq[-1]) != seq + n:
            return False
        return bool((self.seq[1:] > self.seq[:-1]).all())

    def _valid_starts(self, otherwise_ns: int) -> np.ndarray:
        return (
            self.start_ns
            if self.is_valid.all()
            else np.where(self.is_valid, self.start_ns, otherwise_ns)
        )

    @property
    def is_change(self) -> np.ndarray:
        """Records that tell of a change of what is recorded."""
        return is_change(self.rows)

    def hold_ns(self, index: int) -> int:
        """The earliest instant at which the op of an OPEN marker may turn out to have started: its
        start may be seen later, and then lies before the marker's (a kernel's own stamp)."""
        enqueue_ns = int(self.rows["enqueue_ns"][index])
        start_ns = int(self.start_ns[index])
        return min(enqueue_ns, start_ns) if enqueue_ns > 0 else start_ns

    def keys(self) -> np.ndarray:
        """What identifies each record's op: communicator and program order."""
        keys: np.ndarray = self.rows["comm_index"].astype(np.int64) << 32 | self.rows["op_seq"]
        return keys

    def key(self, index: int) -> int:
        """The key of one record."""
        row = self.rows[index : index + 1]
        return int((row["comm_index"].astype(np.int64) << 32 | row["op_seq"])[0])

    def previous_start_ns(self, index: int, carried_ns: int) -> int:
        """Start of the last valid op before ``index``."""
        if self.is_valid[index - 1 : index].any():
            return int(self.start_ns[index - 1])
        valid = np.flatnonzero(self.is_valid[:index])
        return int(self.start_ns[valid[-1]]) if len(valid) else carried_ns
