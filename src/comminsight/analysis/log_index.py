"""The lines of a job's logs by what they say, made once for all rules that ask.

Logs are values that do not change, so that the same ones give the same index: it is kept for the
last ones that were asked for.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

Line = tuple[JobLog, LogEvent]


@dataclass(frozen=True, eq=False, slots=True)
class SameLogs:
    """Logs as a key: equal to these very ones and to no copy, without a look into them."""

    logs: Sequence[JobLog]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameLogs) and self.logs is other.logs

    def __hash__(self) -> int:
        return id(self.logs)


def lines_with(logs: Sequence[JobLog], *codes: LogCode) -> Iterator[Line]:
    """The lines of these codes, each with its log: code after code by name, each in its order."""
    index = _index(SameLogs(logs))
    for code in sorted(codes):
        yield from index.get(code, {}).values()


def lines_in_order(logs: Sequence[JobLog], codes: Collection[LogCode]) -> Iterator[Line]:
    """The lines of these codes, each with its log, in the order of the logs and of their lines."""
    index = _index(SameLogs(logs))
    found = {n: line for code in codes for n, line in index.get(code, {}).items()}
    return (found[n] for n in sorted(found))


def has_any(logs: Sequence[JobLog], codes: Iterable[LogCode]) -> bool:
    """True where there is a line of one of these codes."""
    return not _index(SameLogs(logs)).keys().isdisjoint(codes)


def events_with(logs: Sequence[JobLog], codes: Iterable[LogCode]) -> Iterator[LogEvent]:
    """The lines of these codes alone."""
    return (event for _, event in lines_with(logs, *codes))


def lines_of_writers(logs: Sequence[JobLog]) -> Sequence[Line]:
    """All lines in their order, each with its log; but of NCCL's calls, which may be nearly all of
    a log, only the first of each writer: the others tell no more of who wrote them."""
    return _lines_of_writers(SameLogs(logs))


@functools.lru_cache(maxsize=2)
def _lines_of_writers(key: SameLogs) -> Sequence[Line]:
    found: list[Line] = []
    for log in key.logs:
        seen = set()
        for event in log.events:
            if event.code is LogCode.NCCL_COLL:
                writer = (
                    event.rank, event.pid, event.host, event.task, event.local_rank,
                    event.comm_rank,
                )  # fmt: skip
                if writer in seen:
                    continue
                seen.add(writer)
            found.append((log, event))
    return found


@functools.lru_cache(maxsize=2)  # a job, and the run that it is compared with
def _index(key: SameLogs) -> Mapping[LogCode, Mapping[int, Line]]:
    """By code the lines by their number among those of all logs."""
    found: dict[LogCode, dict[int, Line]] = defaultdict(dict)
    lines = ((log, event) for log in key.logs for event in log.events)
    for n, line in enumerate(lines):
        found[line[1].code][n] = line
    return dict(found)
