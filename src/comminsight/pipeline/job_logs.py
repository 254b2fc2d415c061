"""Logs as evidence: events in epoch time as far as they can be placed, and whose log it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from comminsight.errors import InputError
from comminsight.format.log_reader import LogReader
from comminsight.model.job_evidence import JobLog, UnreadFile
from comminsight.model.log_event import LogEvent
from comminsight.model.verdict import Message

MAX_EVENTS = 200_000  # of one log: a fault says what it is long before
_RANK_IN_NAME = re.compile(r"rank[_\-.=]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)


def read_logs(paths: Iterable[Path]) -> tuple[list[JobLog], list[UnreadFile]]:
    """The logs in ``paths``, and those files that could not be read to their end or at all."""
    logs, unread = [], []
    for path in paths:
        try:
            logs.append(read_log(path))
        except (InputError, OSError):
            unread.append(UnreadFile(file=str(path), reason=Message("unread.damaged")))
    return logs, unread


def read_log(path: Path) -> JobLog:
    """The events of one log, at most ``MAX_EVENTS``; the first ones where there are more.

    Raises InputError for a compressed file that does not expand, OSError for one that vanished.
    """
    with path.open("rb") as stream:
        reader = LogReader(stream, file=str(path))
        events: list[LogEvent] = []
        for event in reader:
            if len(events) < MAX_EVENTS:
                events.append(event)
    written_ns = path.stat().st_mtime_ns
    place = reader.clock.placed
    return JobLog(
        file=str(path),
        events=tuple(
            replace(event, time=place(event.time, file_time_ns=written_ns)) for event in events
        ),
        tail=replace(reader.tail, time=place(reader.tail.time, file_time_ns=written_ns)),
        tally=reader.tally,
        rank=rank_of_log(path, events),
        host=_the_host({event.host for event in events} - {""}),
    )


def rank_of_log(path: Path, events: Iterable[LogEvent]) -> int:
    """The one rank that its lines name, else the one its name tells; -1 where neither does."""
    ranks = {event.rank for event in events} - {-1}
    if ranks:
        return next(iter(ranks)) if len(ranks) == 1 else -1
    named = _RANK_IN_NAME.findall(path.name)
    return int(named[-1]) if named else -1


def _the_host(hosts: set[str]) -> str:
    return next(iter(hosts)) if len(hosts) == 1 else ""
