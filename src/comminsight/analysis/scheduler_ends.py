"""What launchers and schedulers alone tell of the end of a job: nodes that were lost, and which of
its processes ended first by itself.

Their lines mostly bear no stamp: they stand in the order in which one launcher wrote them. What it
says of a process after it was told to end the job says nothing of what began.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from comminsight.analysis.log_ends import task_numbers
from comminsight.analysis.log_faults import SIGNAL_WORDS, exit_text, signal_text
from comminsight.analysis.log_index import events_with, has_any
from comminsight.analysis.log_order import is_earlier_line
from comminsight.analysis.log_ranks import short_host
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode as C
from comminsight.model.log_event import LogEvent

MAX_NODES = 64
CALLED = "MPI_ABORT"
OF_MPI = (C.MPI_RANK_EXIT, C.MPI_ABORT, C.MPI_EXIT_CODE)
OF_SLURM = (C.SLURM_TASK_EXIT, C.SLURM_TASK_KILLED)
ALL_CODES = frozenset({
    *OF_MPI, *OF_SLURM, C.SLURM_OOM, C.SLURM_CANCELLED, C.SLURM_NODE_FAILURE, C.SLURM_STATE,
})  # fmt: skip
# a launcher of its own within the tasks: their numbers are not those of ranks
INNER_LAUNCHER = frozenset({
    C.ELASTIC_WORKER_FAILED, C.ELASTIC_FAILURE, C.ELASTIC_ROOT_CAUSE, C.ELASTIC_CLOSING,
    C.ELASTIC_STUCK, C.ELASTIC_RESTART, C.ELASTIC_SIGNALLED, C.LAUNCHER_EXIT, C.SPAWN_EXIT,
})  # fmt: skip
_BY_OTHERS = re.compile(r"SIG(?:TERM|INT|HUP)\b")
_ABORTED = re.compile(r"SIGABRT|Abort")  # a watchdog too ends its process so, when it waits in vain
_WORD_BY_OTHERS = frozenset({"Terminated", "Interrupt", "Hangup"})
_BRACKETS = re.compile(r"([\w.-]{0,255})\[(\d{1,9}(?:[-,]\d{1,9}){0,2000})\]", re.ASCII)
_NODE_LOSS = "NODE FAIL"


@dataclass(frozen=True, slots=True)
class ToldEnd:
    """The end of one process as its launcher saw it: its number there, how, and the lines."""

    task: int
    host: str
    status: str
    event: LogEvent


@dataclass(frozen=True, slots=True)
class SchedulerEnds:
    """``lost_nodes`` are nodes that Slurm calls failed, with the line; ``unnamed_losses`` lines of
    a node failure that do not name it. ``first`` is the only process that ended by itself before
    anybody ended the job. ``tasks_of_host`` are the processes that lines name on each host.
    ``are_ranks``: a launcher started several of them on one node, as it does for ranks. ``ended``
    are lines with which the job was ended for another reason."""

    lost_nodes: tuple[tuple[str, LogEvent], ...] = ()
    unnamed_losses: tuple[LogEvent, ...] = ()
    first: ToldEnd | None = None
    tasks_of_host: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    are_ranks: bool = False
    ended: tuple[LogEvent, ...] = ()


def scheduler_ends(logs: Sequence[JobLog]) -> SchedulerEnds:
    """What the lines of launchers and schedulers in ``logs`` tell."""
    cancelled = tuple(events_with(logs, (C.SLURM_CANCELLED,)))
    by_loss = tuple(one for one in cancelled if _is_node_loss(one))
    ended = tuple(one for one in cancelled if not _is_node_loss(one))
    states = [e for e in events_with(logs, (C.SLURM_STATE,)) if e.values["state"] == "NODE_FAIL"]
    lost = {
        node: event
        for event in events_with(logs, (C.SLURM_NODE_FAILURE,))
        if not any(_may_be_before(one, event) for one in ended)
        for node in node_names(event.host)
    }
    tasks = _tasks_of_host(logs)
    is_inner = has_any(logs, INNER_LAUNCHER)
    is_mpi = has_any(logs, OF_MPI)
    is_many = any(len(own) > 1 for own in tasks.values())
    return SchedulerEnds(
        lost_nodes=tuple(sorted(lost.items())),
        unnamed_losses=() if lost else (*by_loss, *states),
        first=_first(logs, cancelled),
        tasks_of_host=tasks,
        are_ranks=not is_inner and (is_mpi or is_many),
        ended=ended,
    )


def node_names(text: str) -> list[str]:
    """The nodes in a list of Slurm such as ``gpu-[07,9-11],head``, at most ``MAX_NODES``."""
    found: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text.strip()):
        match = _BRACKETS.fullmatch(part)
        if match is None:
            found.append(part)
            continue
        for span in match[2].split(","):
            first, _, last = span.partition("-")
            stop = min(int(last or first), int(first) + MAX_NODES)
            found += [f"{match[1]}{n:0{len(first)}d}" for n in range(int(first), stop + 1)]
    return [one for one in found if one][:MAX_NODES]


def _is_node_loss(event: LogEvent) -> bool:
    return _NODE_LOSS in str(event.values.get("reason", "")).upper()


def _may_be_before(end: LogEvent, event: LogEvent) -> bool:
    """True unless the line ``event`` certainly stands before that with which the job was ended."""
    return not is_earlier_line(event, end)


def _tasks_of_host(logs: Sequence[JobLog]) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = defaultdict(set)
    for event in events_with(logs, (*OF_SLURM, C.MPI_RANK_EXIT)):
        nodes = node_names(event.host)
        if len(nodes) == 1:
            found[short_host(nodes[0])].update(_tasks(event))
    return {host: tuple(sorted(own)) for host, own in found.items()}


def _tasks(event: LogEvent) -> list[int]:
    tasks = event.values.get("tasks")
    if isinstance(tasks, str):
        return list(task_numbers(tasks))
    return [event.task] if event.task >= 0 else []


def _first(logs: Sequence[JobLog], cancelled: Sequence[LogEvent]) -> ToldEnd | None:
    """The one process of which an end of its own is told; None where it is not one."""
    own: dict[int, ToldEnd] = {}
    for event in events_with(logs, (*OF_MPI, *OF_SLURM)):
        if not (status := _own_status(event)):
            continue
        tasks = _tasks(event)
        is_after = any(_may_be_before(one, event) for one in cancelled)
        if len(tasks) != 1 or is_after or _ABORTED.search(status):
            return None
        told = own.get(tasks[0])
        if told is None or (status.startswith("signal") and not told.status.startswith("signal")):
            own[tasks[0]] = ToldEnd(tasks[0], event.host, status, event)
    return next(iter(own.values())) if len(own) == 1 else None


def _own_status(event: LogEvent) -> str:
    """How the processes ended; "" for a success, and for signals with which others end a job."""
    word, number = event.values.get("signal_name"), event.values.get("signal")
    if isinstance(number, int) and number:
        status = signal_text(number)
    elif isinstance(word, str):
        if word in _WORD_BY_OTHERS:
            return ""
        status = signal_text(SIGNAL_WORDS[word]) if word in SIGNAL_WORDS else word
    else:
        code = event.values.get("exit_code")
        is_abort = event.code is C.MPI_ABORT
        status = exit_text(code) if isinstance(code, int) and code else CALLED * is_abort
    return "" if _BY_OTHERS.search(status) else status


def told_ends(logs: Sequence[JobLog]) -> list[ToldEnd]:
    """The ends of single processes that lines tell, whoever began it."""
    return [
        ToldEnd(tasks[0], event.host, status, event)
        for event in events_with(logs, (*OF_MPI, *OF_SLURM))
        if (status := _own_status(event)) and len(tasks := _tasks(event)) == 1
    ]
