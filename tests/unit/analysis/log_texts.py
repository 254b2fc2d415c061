"""Logs from text, as the reader gives them."""

from __future__ import annotations

import io

from msgspec.structs import replace

from comminsight.format.log_reader import LogReader
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogEvent


def job_log(
    *lines: str, file: str = "job.log", rank: int = -1, local_rank: int = -1, host: str = ""
) -> JobLog:
    """A log with the events of ``lines``, in epoch time as far as they can be placed."""
    reader = LogReader(io.BytesIO("".join(f"{line}\n" for line in lines).encode()), file=file)
    events = list(reader)
    place = reader.clock.placed
    return JobLog(
        file=file, rank=rank, local_rank=local_rank, host=host, tail=reader.tail,
        events=tuple(replace(event, time=place(event.time)) for event in events),
    )  # fmt: skip


def event_of(line: str, file: str = "job.log") -> LogEvent:
    """The one event of a line."""
    (event,) = job_log(line, file=file).events
    return event
