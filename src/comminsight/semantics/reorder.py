"""Time order from arrival order: late or not is decided per record, whatever the chunking.

Records arrive when their op completes, communicator by communicator, so starts are out of order.
The *watermark* is the largest start seen before a record (prefix maximum in arrival order). The
*cut* is the watermark minus the safe window, rounded down to a whole push window:

    cut = floor(min(watermark - safe, oldest open op) / push) * push        (never falls)

A record that starts before the cut at its arrival is late: counted, kept in the archive, not
emitted. Everything pending that starts before the cut is emitted, sorted by (start, arrival).
Since the cut of a record depends on the records before it only, the emitted sequence is the same
for every chunking, live or replayed. Empty push windows cost nothing: the cut is computed, not
stepped.

An op in flight for longer than the safe window would come late by construction. The recorder
therefore writes an OPEN marker while the op is still inside the window, and the marker *holds* the
cut at the op's start until its completion, its OVERDUE marker or a bound releases it. A DRAIN
marker says that everything before it may be emitted, holds or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from comminsight.model.event import OP_DTYPE, empty_batch
from comminsight.model.ops import OpState, RecordKind
from comminsight.model.tally import Tally
from comminsight.semantics.arrival import NEVER_NS, ArrivalSlice, OrderSettings
from comminsight.semantics.losses import Loss, LossLog
from comminsight.semantics.pending import PendingRecords


class Hold(msgspec.Struct, frozen=True, array_like=True):
    """An op in flight that keeps the cut at its start; ``arrival`` numbers its marker."""

    start_ns: int
    arrival: int


class OrderSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the stage carries from batch to batch."""

    watermark_ns: int
    cut_ns: int
    committed_ns: int
    arrival: int
    last_seq: int
    last_start_ns: int
    holds: dict[int, Hold]
    pending: bytes
    losses: list[Loss]
    tally: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Span:
    """Records ``[first, last)`` of a slice that were judged under the same holds."""

    first: int
    last: int
    floor_ns: int
    hold_ns: int


class Reorder:
    """The reorder stage of one session."""

    def __init__(self, settings: OrderSettings | None = None) -> None:
        self.settings = settings or OrderSettings()
        self.tally = Tally()
        self.losses = LossLog()
        self._watermark_ns = NEVER_NS
        self._cut_ns = NEVER_NS
        self._arrival = 0
        self._last_seq = 0
        self._last_start_ns = NEVER_NS
        self._holds: dict[int, Hold] = {}
        self._pending = PendingRecords()
        self._committed_ns = NEVER_NS

    @property
    def n_pending(self) -> int:
        """Records read and neither emitted nor counted away yet."""
        return self._pending.n

    @property
    def n_holds(self) -> int:
        """Open ops that hold the cut."""
        return len(self._holds)

    def push(self, batch: np.ndarray) -> np.ndarray:
        """The records that have become final, in time order (``OP_DTYPE``, possibly none)."""
        self.tally.add("order_read", len(batch))
        if len(batch):
            self._admit(np.ascontiguousarray(batch, OP_DTYPE))
        return self._commit(self._cut_ns)

    def drain(self) -> np.ndarray:
        """Everything pending, in time order: the input has ended."""
        self._holds.clear()
        self._cut_ns = max(self._cut_ns, self._watermark_ns + 1)
        return self._commit(self._cut_ns)

    def drop(self, emitted: int = 0) -> None:
        """Free the buffers; what was pending, and ``emitted`` records back, counts as dropped."""
        self.tally.add("order_emitted", -emitted)
        self.tally.add("order_dropped", self.n_pending + emitted)
        self._pending = PendingRecords()
        self._holds.clear()
        self.losses.clear()

    def refuse(self, n_records: int) -> None:
        """Count records that come after the session was closed."""
        self.tally.add("order_read", n_records)
        self.tally.add("order_dropped", n_records)

    def _admit(self, rows: np.ndarray) -> None:
        part = ArrivalSlice(rows, self.settings, self._watermark_ns)
        n_ops = int(np.count_nonzero(part.is_op))
        self.tally.add("order_markers", len(rows) - n_ops)
        self.tally.add("order_bad", n_ops - int(np.count_nonzero(part.is_valid)))
        if self._is_plain(part):
            self._watermark_ns, self._last_seq = part.newest_ns, int(part.seq[-1])
            self._raise_cut(self._watermark_ns)
            is_kept = part.is_valid
        else:
            is_kept = self._kept(part)
        self._pending.append(rows, part.start_ns, is_kept)
        self._arrival += len(rows)
        self._last_start_ns = part.previous_start_ns(len(rows), self._last_start_ns)

    def _is_plain(self, part: ArrivalSlice) -> bool:
        """Whether all are ops, none late, none missing, and nothing holds the cut: then the cut at
        each record is of no interest."""
        if self._holds or not part.is_all_ops or not part.follows(self._last_seq):
            return False
        return not part.may_be_late(self._cut_ns)

    def _kept(self, part: ArrivalSlice) -> np.ndarray:
        """Which records become pending; notes holds, losses and the late on the way."""
        spans = list(self._judge(part))
        self._watermark_ns = int(part.before_ns[-1])
        self._raise_cut(self._watermark_ns)
        is_late = part.is_valid & (part.start_ns < self._cut_ns)
        gaps = self._gaps(part)
        is_change = part.is_change
        if gaps or is_late.any() or is_change.any():
            cuts = self._cuts(part, spans)
            is_late &= part.start_ns < cuts
            self.tally.add("order_late", int(np.count_nonzero(is_late)))
            self.tally.add("seq_gaps", sum(gaps.values()))
            self._note_losses(part, cuts, np.flatnonzero(is_late | is_change).tolist(), gaps)
        kept: np.ndarray = part.is_valid & ~is_late
        return kept

    # the cut and its holds

    def _judge(self, part: ArrivalSlice) -> Iterator[_Span]:
        """Spans of equal holds; applies the events between them."""
        n = len(part.rows)
        first = 0
        for event in [*self._events(part), n]:
            last = min(event + 1, n)  # the event's own record is judged under the old holds
            while first < last:
                stop = self._expire(part, first, last)
                yield _Span(first, stop, self._cut_ns, self._hold_ns())
                self._raise_cut(int(part.before_ns[stop - 1]))
                first = stop
            if event < n:
                self._apply(part, event)

    def _events(self, part: ArrivalSlice) -> list[int]:
        """Records that open or release a hold: of ops, and drains."""
        is_event = part.is_open | part.is_overdue | part.is_drain
        if not self._holds and not is_event.any():
            return []
        keys = part.keys()
        held = np.concatenate([np.fromiter(self._holds, np.int64), keys[part.is_open]])
        where: list[int] = np.flatnonzero(
            is_event | (part.is_any_op & np.isin(keys, held))
        ).tolist()
        return where

    def _apply(self, part: ArrivalSlice, event: int) -> None:
        key, state = part.key(event), part.state[event]
        if part.kind[event] == RecordKind.DRAIN:
            self._holds.clear()
            self._cut_ns = max(self._cut_ns, int(part.before_ns[event]) + 1)
        elif state == OpState.OPEN:
            if int(part.start_ns[event]) >= max(self._cut_ns, 1):
                start_ns = max(part.hold_ns(event), self._cut_ns)
                self._holds[key] = Hold(start_ns, self._arrival + event)
            if len(self._holds) > self.settings.max_holds:
                self._end_hold(min(self._holds, key=lambda k: self._holds[k].start_ns))
        else:
            self._holds.pop(key, None)

    def _expire(self, part: ArrivalSlice, first: int, last: int) -> int:
        """End the holds that are over at ``first``; the index of the next one to end, or last."""
        settings = self.settings
        now_ns, arrival = int(part.before_ns[first]), self._arrival + first
        for key, hold in list(self._holds.items()):
            is_old = now_ns - hold.start_ns > settings.max_hold_age_ns
            if is_old or arrival - hold.arrival > settings.max_hold_records:
                self._end_hold(key)
        if not self._holds:
            return last
        by_age_ns = self._hold_ns() + settings.max_hold_age_ns
        by_age = int(np.searchsorted(part.before_ns[first:last], by_age_ns, side="right")) + first
        oldest = min(hold.arrival for hold in self._holds.values())
        by_records = oldest + settings.max_hold_records + 1 - self._arrival
        return max(first + 1, min(last, by_age, by_records))

    def _end_hold(self, key: int) -> None:
        del self._holds[key]
        self.tally.add("order_holds_expired")

    def _hold_ns(self) -> int:
        return min((hold.start_ns for hold in self._holds.values()), default=-NEVER_NS)

    def _raise_cut(self, watermark_ns: int) -> None:
        push_ns = self.settings.push_window_ns
        reach_ns = min(watermark_ns - self.settings.safe_window_ns, self._hold_ns())
        self._cut_ns = max(self._cut_ns, reach_ns // push_ns * push_ns)

    def _cuts(self, part: ArrivalSlice, spans: list[_Span]) -> np.ndarray:
        """The cut in force at each record."""
        lengths = [span.last - span.first for span in spans]
        reach = part.before_ns[:-1] - self.settings.safe_window_ns
        np.minimum(reach, np.repeat([span.hold_ns for span in spans], lengths), out=reach)
        push_ns = self.settings.push_window_ns
        floor = np.repeat([span.floor_ns for span in spans], lengths)
        cuts: np.ndarray = np.maximum(reach // push_ns * push_ns, floor)
        return cuts

    # losses

    def _gaps(self, part: ArrivalSlice) -> dict[int, int]:
        """Arrival numbers missing before a record, by its index."""
        newest = np.empty(len(part.seq) + 1, np.int64)
        newest[0] = self._last_seq
        newest[1:] = part.seq
        np.maximum.accumulate(newest, out=newest)
        self._last_seq = int(newest[-1])
        missing = newest[1:] - newest[:-1] - 1
        where = np.flatnonzero(missing > 0)
        return dict(zip(where.tolist(), missing[where].tolist(), strict=True))

    def _note_losses(
        self, part: ArrivalSlice, cuts: np.ndarray, noted: list[int], gaps: dict[int, int]
    ) -> None:
        """Log the gaps before records, the late records and the changes of what is recorded."""
        is_noted = set(noted)
        for index in sorted({*gaps, *noted}):
            cut_ns, start_ns = int(cuts[index]), int(part.start_ns[index])
            if index in gaps:
                low_ns, high_ns = self._gap_range(part, index)
                self.losses.add(Loss(cut_ns, low_ns, high_ns, n_lost=gaps[index]))
            if index in is_noted:
                n_late = int(part.is_valid[index])
                self.losses.add(Loss(cut_ns, start_ns, start_ns, n_late, n_changes=1 - n_late))

    def _gap_range(self, part: ArrivalSlice, index: int) -> tuple[int, int]:
        """Where the missing records may have started: between their neighbours in arrival."""
        around = [part.previous_start_ns(index, self._last_start_ns), int(part.before_ns[index])]
        if part.is_valid[index]:
            around.append(int(part.start_ns[index]))
        known = [start_ns for start_ns in around if start_ns != NEVER_NS]
        return min(known, default=NEVER_NS), max(known, default=NEVER_NS)

    def _commit(self, cut_ns: int) -> np.ndarray:
        """Pending records that start before ``cut_ns``, sorted by (start, arrival)."""
        if cut_ns == self._committed_ns:
            self._pending.settle()
            return empty_batch()
        self._committed_ns = cut_ns
        final = self._pending.take_before(cut_ns)
        self.tally.add("order_emitted", len(final))
        return final

    # snapshot

    def snapshot(self) -> OrderSnapshot:
        """The state between two pushes."""
        return OrderSnapshot(
            watermark_ns=self._watermark_ns, cut_ns=self._cut_ns, committed_ns=self._committed_ns,
            arrival=self._arrival, last_seq=self._last_seq, last_start_ns=self._last_start_ns,
            holds=dict(self._holds), losses=self.losses.snapshot(), tally=self.tally.as_dict(),
            pending=self._pending.rows().tobytes(),
        )  # fmt: skip

    @classmethod
    def resume(cls, settings: OrderSettings, snapshot: OrderSnapshot) -> Reorder:
        """The stage as it was."""
        self = cls(settings)
        self.tally = Tally(snapshot.tally)
        self.losses = LossLog(snapshot.losses)
        self._watermark_ns = snapshot.watermark_ns
        self._cut_ns = snapshot.cut_ns
        self._committed_ns = snapshot.committed_ns
        self._arrival = snapshot.arrival
        self._last_seq = snapshot.last_seq
        self._last_start_ns = snapshot.last_start_ns
        self._holds = dict(snapshot.holds)
        pending = np.frombuffer(snapshot.pending, OP_DTYPE)
        self._pending.append(pending, pending["start_ns"], np.ones(len(pending), np.bool_))
        self._pending.settle()
        return self
