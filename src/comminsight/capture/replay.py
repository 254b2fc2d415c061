"""A run directory as a source."""

from __future__ import annotations

from pathlib import Path

from comminsight.capture.discovery import discover_run
from comminsight.capture.session import SessionData, read_session
from comminsight.capture.source import SourceBatch
from comminsight.errors import InputError


class ReplaySource:
    """The sessions of a run directory, one at each ``poll``, so that memory holds one at a time.

    ``problems`` names what could not be read.
    """

    def __init__(self, run_dir: Path | str) -> None:
        found = discover_run(run_dir)
        self.problems = [f"{path}: is not a readable black box" for path in found.unreadable]
        self._left = list(reversed(found.sessions))

    def poll(self) -> list[SourceBatch]:
        """The next session that can be read; empty at the end."""
        while self._left:
            try:
                data = read_session(self._left.pop())
            except InputError as error:
                self.problems.append(str(error))
                continue
            self.problems.extend(data.problems)
            return [_whole(data)]
        return []

    def close(self) -> None:
        """Nothing stays open."""


def _whole(data: SessionData) -> SourceBatch:
    return SourceBatch(
        session=data.identity,
        comms=data.comms,
        records=data.records,
        losses=data.losses,
        in_flight=data.in_flight,
        liveness=data.liveness,
        pid=data.pid,
        tally=data.tally,
        settings=data.settings,
        is_ended=True,
    )
