"""One stream from two witnesses: segment files (complete, late) and the ring (recent, lossy)."""

from __future__ import annotations

import numpy as np

from comminsight.format.layout import RING_CAPACITY
from comminsight.model.event import empty_batch
from comminsight.model.tally import Tally

_NONE = np.zeros(0, np.int64)


class SeqMerger:
    """Delivers the records of one process in ``seq`` order, each once, however they arrive.

    A record waits while a smaller number may still come. A gap is given up, and counted, when a
    segment has passed it (segments are written in ``seq`` order), when the ring has no place for
    it any more and there are no segments, when a whole ring of later records waits behind it, or
    at the end. Numbers up to ``after_seq`` are neither expected nor delivered.
    """

    def __init__(self, *, after_seq: int = 0) -> None:
        self.tally = Tally()
        self._delivered_seq = after_seq
        self._passed_seq = 0  # segments will bring nothing up to here
        self._pending = empty_batch()

    @property
    def delivered_seq(self) -> int:
        """Number of the newest record delivered."""
        return self._delivered_seq

    def take(
        self,
        segment: np.ndarray,
        ring: np.ndarray,
        *,
        gone_seq: int = 0,
        torn_seqs: np.ndarray = _NONE,
        is_final: bool = False,
    ) -> np.ndarray:
        """The records that may be delivered now.

        Records up to ``gone_seq`` have left the ring and will not come; ``torn_seqs`` do not read
        there. Both only name the cause under which missing numbers are counted.
        """
        self._passed_seq = max(self._passed_seq, gone_seq)
        if len(segment):
            self._passed_seq = max(self._passed_seq, int(segment["seq"].max()))
        if len(self._pending) or len(ring) or not self._is_next(segment):
            batch = self._union(segment, ring)
        else:
            batch = segment
        n_ready = self._n_ready(batch, is_final=is_final)
        self._pending = batch[n_ready:]
        newest = int(batch["seq"][n_ready - 1]) if n_ready else 0
        if is_final:
            newest = max([newest, gone_seq, *torn_seqs[-1:].tolist()])
        self._count_missing(batch["seq"][:n_ready], newest, gone_seq, torn_seqs)
        self._delivered_seq = max(self._delivered_seq, newest)
        return batch[:n_ready]

    def _is_next(self, segment: np.ndarray) -> bool:
        seq = np.ascontiguousarray(segment["seq"])
        is_ascending = bool((seq[1:] > seq[:-1]).all())
        return is_ascending and (len(seq) == 0 or int(seq[0]) > self._delivered_seq)

    def _union(self, segment: np.ndarray, ring: np.ndarray) -> np.ndarray:
        """Everything not delivered yet, by ``seq``; what the segment says wins over the ring."""
        rows = np.concatenate([segment, self._pending, ring])
        _, first_at = np.unique(np.ascontiguousarray(rows["seq"]), return_index=True)
        merged = rows[first_at]
        merged = merged[merged["seq"] > self._delivered_seq]
        old = int(np.count_nonzero(segment["seq"] <= self._delivered_seq))
        in_both = np.intersect1d(segment["seq"], ring["seq"])
        again = int(np.count_nonzero(in_both > self._delivered_seq))
        self.tally.add("records_duplicate", old + again)
        return merged

    def _n_ready(self, batch: np.ndarray, *, is_final: bool) -> int:
        if is_final or len(batch) == 0 or len(batch) >= RING_CAPACITY:
            return len(batch)
        seq = np.ascontiguousarray(batch["seq"])
        n_passed = int(np.searchsorted(seq, self._passed_seq, side="right"))
        expected = max(self._passed_seq, self._delivered_seq) + 1
        is_contiguous = seq[n_passed:] == expected + np.arange(len(seq) - n_passed)
        return n_passed + int(np.logical_and.accumulate(is_contiguous).sum())

    def _count_missing(
        self, seq: np.ndarray, newest: int, gone_seq: int, torn_seqs: np.ndarray
    ) -> None:
        """Counts the numbers between the last delivered and ``newest`` that are not in ``seq``."""
        begin = self._delivered_seq
        if newest <= begin:
            return
        gone_end = min(max(begin, gone_seq), newest)
        n_gone = gone_end - begin - int(np.searchsorted(seq, gone_end, side="right"))
        torn = torn_seqs[(torn_seqs > gone_end) & (torn_seqs <= newest)]
        n_torn = len(np.setdiff1d(torn, seq)) if len(torn) else 0
        self.tally.add("ring_records_overwritten", n_gone)
        self.tally.add("ring_records_torn", n_torn)
        self.tally.add("seq_gaps", newest - begin - len(seq) - n_gone - n_torn)
