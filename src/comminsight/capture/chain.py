"""The segments of one session as one stream, over rotations, renames and the retention cap."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from comminsight.capture.discovery import segment_files
from comminsight.errors import InputError
from comminsight.format.layout import LOSS_REASONS
from comminsight.format.segment import SegmentReader
from comminsight.model.event import COMM_DTYPE, empty_batch
from comminsight.model.tally import Tally
from comminsight.model.topology import SessionIdentity


class SegmentChain:
    """Reads the growing segments of a session in order.

    ``identity``, ``settings``, ``comms``, ``losses`` and ``is_sealed`` tell the state so far;
    ``problems`` the files that could not be read.
    """

    def __init__(self) -> None:
        self.identity: SessionIdentity | None = None
        self.settings: dict[str, int] = {}
        self.comms = np.zeros(0, COMM_DTYPE)
        self.losses = np.zeros((0, LOSS_REASONS), np.int64)
        self.is_sealed = False
        self.problems: list[str] = []
        self._tally = Tally()
        self._reader: SegmentReader | None = None
        self._number = -1  # of the reader, or of the last segment that is over

    @property
    def tally(self) -> Tally:
        """The counts of all segments so far."""
        total = Tally(self._tally.as_dict())
        if self._reader is not None:
            total.merge(self._reader.tally)
        return total

    def poll(self, segment_dir: Path | None, *, is_final: bool) -> np.ndarray:
        """The records written since the last call; ``is_final``: the process is gone.

        A segment is over when it is sealed or when the next one exists: the writer begins that
        one only after its last write to this one.
        """
        files = segment_files(segment_dir)
        newest = files[-1][0] if files else -1
        batches = [empty_batch()]
        if self._reader is not None:
            batches += self._advance(is_over=is_final or newest > self._number)
        for number, path in files:
            if number > self._number:
                self._open(number, path)
                batches += self._advance(is_over=is_final or newest > number)
        return np.concatenate(batches) if len(batches) > 2 else batches[-1]

    def close(self) -> None:
        """Gives back the open file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _open(self, number: int, path: Path) -> None:
        """Makes ``path`` the current segment; a name that has just changed is left for later."""
        try:
            self._reader = SegmentReader(path)
        except InputError as error:
            if path.exists():
                self._fail(str(error))
                self._number = number
            return
        self._number = number

    def _advance(self, *, is_over: bool) -> list[np.ndarray]:
        reader = self._reader
        if reader is None:
            return []
        batches: list[np.ndarray] = []
        try:
            batches += reader.poll()
            if is_over or reader.is_sealed:
                batches += reader.finish()
        except InputError as error:
            self._fail(str(error))
            is_over = True
        self._note(reader)
        if is_over or reader.is_sealed:
            self._tally.merge(reader.tally)
            self.close()
        return batches

    def _note(self, reader: SegmentReader) -> None:
        if reader.has_header:
            self.identity = reader.identity
            self.settings = reader.header.settings
            self.is_sealed = reader.is_sealed
            self.comms = newest_rows([self.comms, reader.comms])
            self.losses = largest_counts([self.losses, reader.losses])

    def _fail(self, message: str) -> None:
        self.problems.append(message)
        self._tally.add("segment_files_unreadable")


def newest_rows(tables: list[np.ndarray]) -> np.ndarray:
    """The newest row of every ``comm_index``, ascending; later tables are newer."""
    rows = np.concatenate([np.zeros(0, COMM_DTYPE), *tables])[::-1]
    _, newest_at = np.unique(rows["comm_index"], return_index=True)
    return rows[newest_at]


def largest_counts(tables: list[np.ndarray]) -> np.ndarray:
    """The joined loss table: every table is cumulative, and rows are only appended."""
    n_rows = max((len(table) for table in tables), default=0)
    joined = np.zeros((n_rows, LOSS_REASONS), np.int64)
    for table in tables:
        np.maximum(joined[: len(table)], table, out=joined[: len(table)])
    return joined
