"""What logs say of the end of each rank: its lines of fault, of echo and of an end in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from comminsight.analysis.bus_id import bus_number
from comminsight.analysis.log_days import is_dated, is_of_other_days, job_days
from comminsight.analysis.log_faults import (
    ENDED_BY_OTHERS,
    Fault,
    FaultKind,
    exit_text,
    fault_of,
    signal_text,
)
from comminsight.analysis.log_index import events_with, has_any, lines_of_writers
from comminsight.analysis.log_ranks import OF_KERNEL, LogRanks, short_host
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent, LogTail

MAX_TASKS = 4096
CANCELS = frozenset({LogCode.SLURM_CANCELLED, LogCode.ELASTIC_SIGNALLED})
DESTROYED = Fault(FaultKind.LEFT, "left")


@dataclass(frozen=True, slots=True)
class RankLine:
    """A line about the end of a rank (-1: nobody knows of which)."""

    rank: int
    fault: Fault
    event: LogEvent


@dataclass(frozen=True, slots=True)
class LogEnds:
    """All such lines. ``closed`` are ranks that a launcher ended, with the line that says so;
    ``statuses`` is how the process of a rank ended by its launcher, where it was no success;
    ``tails`` are the last lines of the logs of one rank by their file; ``labelled`` are the files
    in which every line tells its rank, not only those of PyTorch; ``unyielding`` are ranks
    that did not end when they were asked to; ``cancelled`` are lines with which somebody ended the
    whole job."""

    lines: tuple[RankLine, ...]
    closed: dict[int, LogEvent]
    statuses: dict[int, str]
    tails: Mapping[str, LogTail]
    labelled: frozenset[str]
    seen: frozenset[int]
    unyielding: dict[int, LogEvent]
    cancelled: tuple[LogEvent, ...]

    @property
    def last_lines(self) -> frozenset[tuple[str, int]]:
        """The (file, line) with which logs of one rank end."""
        return frozenset((file, tail.line) for file, tail in self.tails.items())

    def of(self, *kinds: FaultKind) -> dict[int, list[RankLine]]:
        """The lines of these kinds by rank, those of an unknown rank under -1."""
        found: dict[int, list[RankLine]] = defaultdict(list)
        for line in self.lines:
            if line.fault.kind in kinds:
                found[line.rank].append(line)
        return dict(found)


def ends_of(logs: Sequence[JobLog], ranks: LogRanks) -> LogEnds:
    """What ``logs`` say of ends, in the order of their lines."""
    lines, seen = [], set()
    closed: dict[int, LogEvent] = {}
    statuses: dict[int, str] = {}
    unyielding: dict[int, LogEvent] = {}
    days = job_days(logs) if has_any(logs, OF_KERNEL) else {}
    for log, event in lines_of_writers(logs):
        if event.code is LogCode.NCCL_COLL:  # it tells of no end
            seen.add(ranks.rank_of(log, event))
            continue
        if event.code in OF_KERNEL and is_of_other_days(event, days):
            continue
        for rank in _ranks_of_event(ranks, log, event):
            seen.add(rank)
            if event.code in ENDED_BY_OTHERS and rank >= 0:
                closed.setdefault(rank, event)
            if rank >= 0 and _is_unyielding(event):
                unyielding.setdefault(rank, event)
            if rank >= 0 and (status := _status(event)):
                statuses.setdefault(rank, status)
            fault = _fault(event, ranks)
            if fault is not None:
                lines.append(RankLine(rank, fault, event))
    tails = {log.file: log.tail for log in logs if log.rank >= 0}
    seen |= {log.rank for log in logs}
    return LogEnds(
        tuple(lines),
        closed,
        statuses,
        tails,
        frozenset(_labelled(logs)),
        frozenset(seen - {-1}),
        unyielding,
        tuple(events_with(logs, CANCELS)),
    )


def _labelled(logs: Sequence[JobLog]) -> Iterator[str]:
    """The files in which lines of NCCL have a rank before them: a launcher put it there."""
    for log, event in lines_of_writers(logs):
        if event.rank >= 0 and event.code.value.startswith("nccl_"):
            yield log.file


def _fault(event: LogEvent, ranks: LogRanks) -> Fault | None:
    """As ``fault_of``; the end of the communicator of all ranks is an end in order too."""
    is_whole = ranks.world_size > 1 and event.values.get("n_ranks") == ranks.world_size
    if event.code is LogCode.NCCL_DESTROY and is_whole:
        return DESTROYED
    return fault_of(event)


def _is_unyielding(event: LogEvent) -> bool:
    """True for a process that a launcher asked to end in vain."""
    is_forced = event.code is LogCode.ELASTIC_CLOSING and "forcefully" in event.text
    return is_forced or event.code is LogCode.ELASTIC_STUCK


def _status(event: LogEvent) -> str:
    """How a launcher saw a process end, "" for a success and for other lines."""
    code, number = event.values.get("exit_code"), event.values.get("signal")
    if event.code in ENDED_BY_OTHERS:
        return ""
    if isinstance(number, int) and number:
        return signal_text(number)
    return exit_text(code) if isinstance(code, int) and code else ""


def _ranks_of_event(ranks: LogRanks, log: JobLog, event: LogEvent) -> Iterator[int]:
    tasks = event.values.get("tasks")
    if isinstance(tasks, str) and ranks.task_is_rank:
        yield from task_numbers(tasks)
    elif event.code is LogCode.KERNEL_XID:
        yield _of_device(ranks, log, event)
    else:
        yield ranks.rank_of(log, event)


def task_numbers(tasks: str) -> Iterator[int]:
    """The numbers in a list such as ``0-3,5``, at most ``MAX_TASKS`` of a range."""
    for part in tasks.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            stop = int(last) if last.isdigit() else int(first)
            yield from range(int(first), min(stop, int(first) + MAX_TASKS) + 1)


def _of_device(ranks: LogRanks, log: JobLog, event: LogEvent) -> int:
    """The rank on the GPU of a line of the kernel, else that of its process."""
    host = short_host(event.host or log.host)
    bus_id = bus_number(str(event.values.get("device", "")))
    rank = ranks.devices.get((host, bus_id), -1)
    if rank < 0:
        return ranks.rank_of(log, event)
    # inside a container the process has another number; without a day it may be one of long ago
    is_its_own = event.pid <= 0 or ranks.by_process.get((host, event.pid), -1) == rank
    return rank if is_its_own or is_dated(event) else -1
