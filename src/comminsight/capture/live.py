"""The processes of this node as a source: segments being written, slots in flight, ring tails."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from comminsight.capture.box import BoxReading, process_liveness, read_box
from comminsight.capture.chain import SegmentChain, largest_counts, newest_rows
from comminsight.capture.discovery import SessionPaths, discover
from comminsight.capture.merge import SeqMerger
from comminsight.capture.session import (
    capture_lost,
    join_identity,
    merge_at_end,
    unfinished_markers,
)
from comminsight.capture.source import SourceBatch
from comminsight.errors import InputError
from comminsight.format.blackbox import BoxData
from comminsight.format.layout import SLOT_DTYPE
from comminsight.model.event import empty_batch
from comminsight.model.hang import Liveness
from comminsight.model.tally import Tally
from comminsight.model.topology import SessionIdentity

ENDED = (Liveness.DEAD, Liveness.CLOSED)


class LiveSource:
    """The sessions with segments under ``spool`` or a box in ``box_dirs``.

    With ``run_id`` sessions of other runs are passed over. ``problems`` names, by session, what
    could not be read.
    """

    def __init__(self, spool: Path | None, *box_dirs: Path, run_id: str = "") -> None:
        self._spool = spool
        self._box_dirs = box_dirs
        self._run_id = run_id
        self._followers: dict[str, SessionFollower] = {}

    @property
    def problems(self) -> dict[str, list[str]]:
        """Messages by session id, for sessions that have any."""
        found = {name: follower.problems for name, follower in self._followers.items()}
        return {name: messages for name, messages in found.items() if messages}

    def poll(self) -> list[SourceBatch]:
        """One batch of every session that has news, has ops in flight or has just ended."""
        batches = []
        for paths in discover(self._spool, *self._box_dirs).sessions:
            if paths.session_id not in self._followers:
                self._followers[paths.session_id] = SessionFollower(run_id=self._run_id)
            batch = self._followers[paths.session_id].poll(paths)
            if batch is not None:
                batches.append(batch)
        return batches

    def close(self) -> None:
        """Gives back open files."""
        for follower in self._followers.values():
            follower.close()


class SessionFollower:
    """One session from its first record to the end of its process."""

    def __init__(self, *, run_id: str = "") -> None:
        self.is_ended = False
        self._is_foreign = False
        self._run_id = run_id
        self._box_problem: list[str] = []
        self._chain = SegmentChain()
        self._merger = SeqMerger()
        self._unfinished = np.zeros(0, SLOT_DTYPE)  # by markers, for sessions without a box
        self._seen: tuple[Liveness, SessionIdentity] | None = None

    @property
    def problems(self) -> list[str]:
        """What could not be read."""
        return self._chain.problems + self._box_problem

    def close(self) -> None:
        """Gives back open files."""
        self._chain.close()

    def poll(self, paths: SessionPaths) -> SourceBatch | None:
        """What is new, or None.

        Whether the process is gone is asked before its files are read, so that nothing can be
        written after a reading that is taken for the last.
        """
        if self.is_ended or self._is_foreign:
            return None
        reading = self._read_box(paths)
        box = None if reading is None else reading.data
        liveness, pid = self._liveness(reading)
        is_final = liveness in ENDED
        if box is not None and self._is_of_other_run(box.identity):
            return None
        stored = self._chain.poll(paths.segment_dir, is_final=is_final)
        stated = [self._chain.identity, None if box is None else box.identity]
        known = [identity for identity in stated if identity is not None]
        if not known or self._is_of_other_run(known[-1]):
            return None
        has_segments = paths.segment_dir is not None
        records = self._merge(stored, box, has_segments=has_segments, is_final=is_final)
        self.is_ended = is_final
        batch = self._batch(join_identity(known), records, box, liveness, pid)
        return batch if self._is_news(batch) else None

    def _is_of_other_run(self, identity: SessionIdentity) -> bool:
        """Asked once: a session does not change its run."""
        self._is_foreign = self._run_id not in {"", identity.run_id}
        return self._is_foreign

    def _read_box(self, paths: SessionPaths) -> BoxReading | None:
        self._box_problem = []
        if paths.box is None:
            return None
        try:
            return read_box(paths.box)
        except InputError as error:
            self._box_problem = [str(error)]
            return None

    def _liveness(self, reading: BoxReading | None) -> tuple[Liveness, int]:
        if reading is not None:
            return reading.liveness, reading.pid
        if self._chain.identity is None:
            return Liveness.UNKNOWN, -1
        liveness, pid = process_liveness(self._chain.identity)
        is_closed = liveness is Liveness.DEAD and self._chain.is_sealed
        return (Liveness.CLOSED if is_closed else liveness), pid

    def _merge(
        self, stored: np.ndarray, box: BoxData | None, *, has_segments: bool, is_final: bool
    ) -> np.ndarray:
        if is_final:
            return merge_at_end(
                self._merger, stored, box, has_segments=has_segments, is_alive=False
            )
        if box is None:
            return self._merger.take(stored, empty_batch())
        gone_seq = 0 if has_segments else box.overwritten_seq
        return self._merger.take(stored, box.ring, gone_seq=gone_seq, torn_seqs=box.torn_seqs)

    def _batch(
        self,
        session: SessionIdentity,
        records: np.ndarray,
        box: BoxData | None,
        liveness: Liveness,
        pid: int,
    ) -> SourceBatch:
        chain = self._chain
        comms = newest_rows([chain.comms] + ([box.comms] if box else []))
        markers = np.concatenate([self._unfinished["record"], records])
        self._unfinished = unfinished_markers(markers, comms)
        losses = largest_counts([chain.losses] + ([box.losses] if box else []))
        tally = Tally(chain.tally.as_dict())
        tally.merge(self._merger.tally)
        tally.add("capture_lost", capture_lost(losses))
        if box is not None:
            tally.merge(box.tally)
        return SourceBatch(
            session=session,
            comms=comms,
            records=records,
            losses=losses,
            in_flight=self._unfinished if box is None else box.in_flight,
            liveness=liveness,
            pid=pid,
            tally=tally,
            settings=box.settings if box else chain.settings,
            is_ended=self.is_ended,
        )

    def _is_news(self, batch: SourceBatch) -> bool:
        state = (batch.liveness, batch.session)
        is_news = state != self._seen or bool(len(batch.records) or len(batch.in_flight))
        self._seen = state
        return is_news
