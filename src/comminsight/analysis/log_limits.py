"""What ran out by the lines of logs, and the limits that logs list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from comminsight.analysis.log_index import events_with, lines_with
from comminsight.analysis.log_ranks import LogRanks, short_host
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

KIB = 1024
UNIT_BYTES = {"": 1, "K": KIB, "M": KIB**2, "G": KIB**3, "T": KIB**4}
LOCKED = "max locked memory"
FILES = "max open files"
NAMES = {
    "max locked memory": LOCKED, "open files": FILES, "max open files": FILES,
}  # fmt: skip
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A line with the rank and host that wrote it; -1 and "" where they are not told."""

    rank: int
    host: str
    event: LogEvent


@dataclass(frozen=True, slots=True)
class LimitLine:
    """A limit as a log lists it: in bytes for memory, ``UNLIMITED`` without one."""

    name: str
    value: int
    event: LogEvent


def lines_of(logs: Sequence[JobLog], ranks: LogRanks, codes: Iterable[LogCode]) -> list[PlacedLine]:
    """All lines of these codes."""
    return [
        PlacedLine(ranks.rank_of(log, event), short_host(event.host or log.host), event)
        for log, event in lines_with(logs, *codes)
    ]


def named(lines: Iterable[PlacedLine]) -> tuple[int, ...]:
    """The known ranks of lines, ascending."""
    return tuple(sorted({line.rank for line in lines} - {-1}))


def limits(logs: Sequence[JobLog], name: str) -> list[LimitLine]:
    """Every value of a limit that the logs list, the smallest first."""
    found = (
        LimitLine(name, _value(event), event)
        for event in events_with(logs, [LogCode.PROCESS_LIMIT])
        if _name(event) == name
    )
    return sorted(found, key=lambda one: one.value)


def _name(event: LogEvent) -> str:
    return NAMES.get(str(event.values.get("name", "")).lower(), "")


def _value(event: LogEvent) -> int:
    text = str(event.values.get("value", ""))
    if not text.isdigit():
        return UNLIMITED
    unit = str(event.values.get("unit", "")).lower()
    return min(int(text) * (KIB if unit.startswith("kb") else 1), UNLIMITED)


def shm_capacity_bytes(logs: Sequence[JobLog]) -> int:
    """The smallest size of /dev/shm that a log lists, 0 where none does."""
    found = [
        size
        for event in events_with(logs, [LogCode.SHM_FILESYSTEM])
        if (size := size_bytes(str(event.values.get("capacity", ""))))
    ]
    return min(found, default=0)


def size_bytes(text: str) -> int:
    """``64M`` in bytes, 0 for another text."""
    number = text.rstrip("KMGT")
    unit = text[len(number) :]
    is_number = number.replace(".", "", 1).isdigit()
    return round(float(number) * UNIT_BYTES[unit]) if is_number and unit in UNIT_BYTES else 0


def setting(logs: Sequence[JobLog], name: str, default: int) -> int:
    """The largest number that a variable of NCCL is set to, ``default`` where none is."""
    values = [
        int(text)
        for event in events_with(logs, [LogCode.NCCL_ENV, LogCode.ENVIRONMENT])
        if event.values.get("name") == name
        and (text := str(event.values.get("value", ""))).isdigit()
        and len(text) < 10
    ]
    return max(values, default=default)
