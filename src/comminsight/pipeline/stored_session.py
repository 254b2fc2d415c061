"""The segments of one session as a stream of bounded memory: what a rebuild reads.

Who the session is and its communicators come from the newest segment, since every segment states
them again; then the records follow segment by segment in ``seq`` order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from comminsight.capture.discovery import segment_files
from comminsight.capture.merge import SeqMerger
from comminsight.capture.session import SessionData, join_session, segment_liveness
from comminsight.errors import InputError
from comminsight.format.segment import SegmentData, SegmentReader, read_segment
from comminsight.model.event import empty_batch
from comminsight.model.hang import Liveness
from comminsight.model.topology import SessionIdentity
from comminsight.pipeline.load import with_resolved_rank
from comminsight.pipeline.ranks import split_ranks


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session in its segments. ``is_over``: no record will follow. ``is_shared``: the process
    held several ranks, so that its records are not those of one. ``is_closed``: it closed its
    records, and passed over none that it should have recorded. ``spans`` are the first and last
    start in each segment that has been read."""

    folder: Path
    identity: SessionIdentity
    comms: np.ndarray
    settings: dict[str, int]
    is_over: bool
    is_shared: bool
    is_closed: bool
    newest: SegmentData
    spans: dict[str, tuple[int, int]]

    def batches(self) -> Iterator[np.ndarray]:
        """All records (``OP_DTYPE``) in ``seq`` order, each once; fills ``spans``."""
        merger = SeqMerger()
        files = [path for _, path in segment_files(self.folder)]
        for path in files[:-1]:
            for batch in _batches(path):
                self._note(path, batch)
                yield merger.take(batch, empty_batch())
        self._note(files[-1], self.newest.records)
        yield merger.take(self.newest.records, empty_batch(), is_final=True)

    def _note(self, path: Path, batch: np.ndarray) -> None:
        start_ns = batch["start_ns"]
        known_ns = start_ns[start_ns > 0]
        if len(known_ns):
            low_ns, high_ns = self.spans.get(str(path), (int(known_ns[0]), 0))
            span = min(low_ns, int(known_ns.min())), max(high_ns, int(known_ns.max()))
            self.spans[str(path)] = span


def open_stored(folder: Path) -> StoredSession:
    """The session whose segments lie in ``folder``.

    Raises InputError when its newest segment cannot be read.
    """
    files = segment_files(folder)
    if not files:
        raise InputError("no segments (*.ciseg) in it", path=str(folder))
    newest = read_segment(files[-1][1])
    head = replace(newest, records=empty_batch())  # who it is does not stand in the records
    state = with_resolved_rank(join_session([head], None, is_tail=True))
    liveness, _ = segment_liveness(state.identity, is_sealed=newest.is_sealed)
    return StoredSession(
        folder=folder, identity=state.identity, comms=state.comms, settings=state.settings,
        is_over=liveness is not Liveness.ALIVE, is_shared=_is_shared(state),
        is_closed=not (state.is_cut or state.tally["capture_lost"]), newest=newest, spans={},
    )  # fmt: skip


def _is_shared(state: SessionData) -> bool:
    parts, n_left_out = split_ranks(state)
    return len(parts) > 1 or n_left_out > 0


def _batches(path: Path) -> Iterator[np.ndarray]:
    """The records of one earlier segment; one that does not read is a gap of the numbers."""
    try:
        with SegmentReader(path) as reader:
            yield from reader.poll()
            yield from reader.finish()
    except InputError:
        return
