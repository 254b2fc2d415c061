"""Logs as evidence: events in epoch time as far as they can be placed, and whose log it is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from comminsight.analysis.log_ranks import OF_OTHERS
from comminsight.errors import InputError
from comminsight.format.log_reader import LogReader
from comminsight.format.regular_file import open_regular
from comminsight.model.job_evidence import JobLog, UnreadFile
from comminsight.model.log_event import LogCode, LogEvent, LogTime
from comminsight.model.verdict import Message
from comminsight.pipeline.reading_pool import ReadingPool

MAX_EVENTS = 200_000  # of one log that tell how it ended, and as many that tell how it went
# what NCCL writes for each call or connection: there may be millions of lines before the end
BULK = frozenset(
    {
        LogCode.NCCL_COLL, LogCode.NCCL_CHANNEL, LogCode.NCCL_CHANNEL_RANKS, LogCode.NCCL_TUNING,
        LogCode.NCCL_RING, LogCode.NCCL_TREES, LogCode.NCCL_RESULT_PATH, LogCode.LONG_WORK,
        LogCode.SERVING_RATE,
    }
)  # fmt: skip
LOG_WORKERS = ReadingPool("comminsight.pipeline.log_worker", JobLog)
_RANK_IN_NAME = re.compile(r"rank[_\-.=]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)
# torchrun writes attempt_0/3/stderr.log: the number is that of the rank on its node
_LOCAL_RANK = re.compile(r"(?:^|/)attempt_\d{1,6}/(\d{1,6})/std(?:err|out)\.log", re.ASCII)


def read_logs(paths: Iterable[Path]) -> tuple[list[JobLog], list[UnreadFile]]:
    """The logs in ``paths``, and those files that could not be read to their end or at all."""
    logs, unread = [], []
    given = list(paths)
    known = LOG_WORKERS.read(given, read_log, lambda log: log)
    for path in given:
        try:
            logs.append(known[path] if path in known else read_log(path))
        except InputError:
            unread.append(UnreadFile(file=str(path), reason=Message("unread.damaged")))
        except OSError:
            unread.append(UnreadFile(file=str(path), reason=Message("unread.unreadable")))
    if len(logs) == 1 and rank_of_name(Path(logs[0].file)) < 0:
        logs[0] = replace(logs[0], rank=-1)  # all ranks may have written it, and one said so
    return logs, unread


def read_log(path: Path) -> JobLog:
    """The events of one log, at most ``MAX_EVENTS`` of bulk and of all others; the first ones where
    there are more.

    Raises InputError for a compressed file that does not expand, OSError for one that the
    system does not give.
    """
    opened = open_regular(path)
    if opened is None:
        raise InputError("is no file", path=str(path), next_step="give the log as a file")
    with opened as stream:
        reader = LogReader(stream, file=str(path))
        events = list(_bounded(reader))
        written_ns = os.fstat(stream.fileno()).st_mtime_ns
    place = reader.clock.placed
    return JobLog(
        file=str(path),
        events=tuple(_placed(event, place, written_ns) for event in events),
        tail=replace(reader.tail, time=place(reader.tail.time, file_time_ns=written_ns)),
        tally=reader.tally,
        rank=rank_of_log(path, events),
        local_rank=local_rank_of_log(path),
        host=_the_host({event.host for event in events} - {""}),
    )


def _placed(event: LogEvent, place: Callable[..., LogTime], written_ns: int) -> LogEvent:
    time = place(event.time, file_time_ns=written_ns)
    return event if time is event.time else replace(event, time=time)


def _bounded(events: Iterable[LogEvent]) -> Iterator[LogEvent]:
    left = {True: MAX_EVENTS, False: MAX_EVENTS}
    for event in events:
        is_bulk = event.code in BULK
        if left[is_bulk] > 0:
            left[is_bulk] -= 1
            yield event


def rank_of_log(path: Path, events: Iterable[LogEvent]) -> int:
    """The one rank that its lines name, else the one its name tells; -1 where neither does, and
    where several processes wrote it."""
    own = [event for event in events if event.code not in OF_OTHERS]
    ranks = {event.rank for event in own} - {-1}
    if len(ranks) > 1 or any(len(seen - {-1}) > 1 for seen in _writers(own)):
        return -1
    return next(iter(ranks), rank_of_name(path))


def rank_of_name(path: Path) -> int:
    """The rank in the name of a file, -1 where there is none."""
    named = _RANK_IN_NAME.findall(path.name)
    return int(named[-1]) if named else -1


def _writers(events: Iterable[LogEvent]) -> tuple[set[int], set[int], set[int]]:
    """The processes, local ranks and tasks of which lines are there."""
    pids, local_ranks, tasks = set(), set(), set()
    for event in events:
        pids.add(event.pid)
        local_ranks.add(event.local_rank)
        tasks.add(event.task)
    return pids, local_ranks, tasks


def local_rank_of_log(path: Path) -> int:
    """The local rank that a folder of torchrun tells, -1 where it is none."""
    match = _LOCAL_RANK.search(path.as_posix())
    return int(match[1]) if match else -1


def _the_host(hosts: set[str]) -> str:
    return next(iter(hosts)) if len(hosts) == 1 else ""
