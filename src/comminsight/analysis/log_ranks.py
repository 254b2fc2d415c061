"""Which rank a line of a log is about: told by its prefix, its file, its process or its task.

A number counts as the global rank only where something says that it is one. The rank in a
communicator is one where the communicator is that of all ranks; the number of a launcher's task
where each task is one process; a local rank where there is one node. All else is -1: unknown.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from comminsight.analysis.log_index import (
    SameLogs,
    lines_in_order,
    lines_of_writers,
    lines_with,
)
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

Process = tuple[str, int]  # short name of the host, process id
ProcessLine = tuple[JobLog, LogEvent, Process]
SELF = "localhost"  # what torchrun calls the host of a job of one node: any host
DEFAULT_GROUP = "default_pg"
INIT_CODES = frozenset({LogCode.NCCL_INIT_START, LogCode.NCCL_INIT_COMPLETE})
# lines in which one process speaks of another: their prefix and file are not those of its rank
OF_LAUNCHERS = frozenset(
    {
        LogCode.ELASTIC_WORKER_FAILED, LogCode.ELASTIC_FAILURE, LogCode.ELASTIC_ROOT_CAUSE,
        LogCode.ELASTIC_CLOSING, LogCode.ELASTIC_STUCK, LogCode.SPAWN_EXIT, LogCode.LAUNCHER_EXIT,
        LogCode.MPI_RANK_EXIT, LogCode.MPI_EXIT_CODE, LogCode.SHELL_SIGNAL, LogCode.PROCESS_SIGNAL,
        LogCode.MPI_ABORT,
        LogCode.SLURM_TASK_EXIT, LogCode.SLURM_TASK_KILLED, LogCode.RAY_WORKER_DIED,
        LogCode.PROCESS_DONE,
    }
)  # fmt: skip
OF_KERNEL = frozenset(
    {
        LogCode.KERNEL_XID, LogCode.KERNEL_OOM_KILL, LogCode.KERNEL_SEGFAULT,
        LogCode.KERNEL_HUNG_TASK, LogCode.KERNEL_LOCKUP,
    }
)  # fmt: skip
OF_OTHERS = OF_LAUNCHERS | OF_KERNEL


@dataclass(frozen=True, slots=True, eq=False)  # equal to itself alone: a key
class LogRanks:
    """Ranks by what names them. ``world_size`` is 0 where no line tells it.

    ``claims`` are the processes that call themselves a rank: several of one rank are several jobs,
    or several lives of one. ``devices`` are the bus ids of GPUs with the rank that uses them.
    """

    world_size: int = 0
    by_process: Mapping[Process, int] = field(default_factory=dict)
    claims: Mapping[int, frozenset[Process]] = field(default_factory=dict)
    devices: Mapping[tuple[str, int], int] = field(default_factory=dict)
    task_is_rank: bool = False
    is_one_node: bool = False

    def rank_of(self, log: JobLog, event: LogEvent) -> int:
        """The global rank that the event is about; -1 where nothing tells it."""
        if event.rank >= 0:
            return event.rank
        if event.code not in OF_OTHERS and log.rank >= 0:
            return log.rank
        if (rank := self._of_process(event, log)) >= 0:
            return rank
        if event.code not in OF_OTHERS and event.comm_rank >= 0 and is_default_group(event):
            return event.comm_rank
        if event.task >= 0 and self.task_is_rank:
            return event.task
        local = event.local_rank if event.local_rank >= 0 else log.local_rank
        is_of_others = event.code in OF_OTHERS and event.local_rank < 0
        return local if self.is_one_node and not is_of_others else -1

    def host_of(self, rank: int) -> str:
        """The one host on which the rank's processes ran, "" where none or several are known."""
        hosts = {host for host, _ in self.claims.get(rank, ())} - {SELF}
        return next(iter(hosts)) if len(hosts) == 1 else ""

    def _of_process(self, event: LogEvent, log: JobLog) -> int:
        if event.pid <= 0:
            return -1
        host = short_host(event.host or log.host)
        if host:
            return self.by_process.get((host, event.pid), -1)
        found = {rank for (_, pid), rank in self.by_process.items() if pid == event.pid}
        # any process of a host may be in its kernel's log, only its own in that of a launcher
        is_launcher = event.code in OF_LAUNCHERS
        is_told = is_launcher or len({own for own, _ in self.by_process}) == 1
        return found.pop() if len(found) == 1 and is_told else -1


def is_default_group(event: LogEvent) -> bool:
    """True where the line says that its process group is the one of all ranks."""
    name = event.values.get("pg", "")
    return name == DEFAULT_GROUP or (not name and event.values.get("pg_id") == "0")


@functools.lru_cache(maxsize=1 << 14)
def short_host(host: str) -> str:
    """The name of a host without its domain; an address stays as it is."""
    return host if host[:1].isdigit() or ":" in host else host.partition(".")[0]


def ranks_of(logs: Sequence[JobLog], world_size: int = 0) -> LogRanks:
    """What the lines of ``logs`` tell of ranks; ``world_size`` is 0 where nobody gave it."""
    return _ranks_of(SameLogs(logs), world_size)


@functools.lru_cache(maxsize=4)
def _ranks_of(key: SameLogs, world_size: int) -> LogRanks:
    logs = key.logs
    world = world_size or _told_world(logs)
    own = list(_telling(logs))
    direct = _conflict_free(_direct(logs, own))
    by_process = _conflict_free(_by_world(own, world)) | direct
    task_is_rank = _task_is_rank(logs, own, by_process)
    if task_is_rank:
        by_process |= {p: t for p, t in _by_task(own).items() if p not in by_process}
    claims: dict[int, set[Process]] = defaultdict(set)
    for process, rank in by_process.items():
        claims[rank].add(process)
    return LogRanks(
        world_size=max([world, *(1 + rank for rank in by_process.values())]) if world else 0,
        by_process=by_process,
        claims={rank: frozenset(claiming) for rank, claiming in claims.items()},
        devices=_devices(own, by_process),
        task_is_rank=task_is_rank,
        is_one_node=_is_one_node(logs, world),
    )


def processes(logs: Sequence[JobLog]) -> Iterator[ProcessLine]:
    """The lines that processes write about themselves with their host and number; of NCCL's calls
    the first of each process."""
    for log, event in lines_of_writers(logs):
        host = short_host(event.host or log.host)
        if event.code not in OF_OTHERS and event.pid > 0 and host:
            yield log, event, (host, event.pid)


def _telling(logs: Sequence[JobLog]) -> Iterator[ProcessLine]:
    """Of the lines of processes those of initialisation, and of all that tell the same the first:
    most lines name the same writer as the one before."""
    seen = set()
    for log, event, process in processes(logs):
        key = (process, event.rank, log.rank, event.task)
        if key not in seen or event.code in INIT_CODES:
            seen.add(key)
            yield log, event, process


def _direct(logs: Sequence[JobLog], own: Iterable[ProcessLine]) -> Iterator[tuple[Process, int]]:
    for log, event, process in own:
        rank = event.rank if event.rank >= 0 else log.rank
        if rank >= 0:
            yield process, rank
    for log, event in lines_in_order(logs, OF_OTHERS):
        host = short_host(event.host or log.host)
        if event.rank >= 0 and event.pid > 0 and host:
            yield (host, event.pid), event.rank  # torchrun's table has all three in one row


def _by_world(own: Iterable[ProcessLine], world: int) -> Iterator[tuple[Process, int]]:
    for _, event, process in own:
        is_init = event.code in INIT_CODES and "parent" not in event.values
        if is_init and event.values.get("n_ranks") == world > 1:
            yield process, event.comm_rank


def _conflict_free(pairs: Iterable[tuple[Process, int]]) -> dict[Process, int]:
    """The processes that are called one rank only."""
    found: dict[Process, set[int]] = defaultdict(set)
    for process, rank in pairs:
        if rank >= 0:
            found[process].add(rank)
    return {process: ranks.pop() for process, ranks in found.items() if len(ranks) == 1}


def _told_world(logs: Sequence[JobLog]) -> int:
    """The size of the largest communicator that was not split off another; 0 without any."""
    sizes = [
        int(str(event.values["n_ranks"]))
        for _, event in lines_with(logs, *INIT_CODES)
        if "n_ranks" in event.values
    ]
    return max(sizes, default=0)


def _by_task(own: Iterable[ProcessLine]) -> dict[Process, int]:
    return _conflict_free((process, event.task) for _, event, process in own)


def _task_is_rank(
    logs: Sequence[JobLog], own: Iterable[ProcessLine], by_process: Mapping[Process, int]
) -> bool:
    """True where each of at least two tasks is one process, and no line gives it another rank."""
    of_task: dict[int, set[Process]] = defaultdict(set)
    for _, event, process in own:
        if event.task >= 0:
            of_task[event.task].add(process)
            if by_process.get(process, event.task) != event.task:
                return False
    if len(of_task) < 2 or any(len(writers) > 1 for writers in of_task.values()):
        return False
    has_launcher_inside = any(
        event.task >= 0 and event.local_rank > 0 for _, event in lines_of_writers(logs)
    )
    return not has_launcher_inside


def _devices(
    own: Iterable[ProcessLine], by_process: Mapping[Process, int]
) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for _, event, process in own:
        bus_id = event.values.get("bus_id") if event.code in INIT_CODES else None
        if isinstance(bus_id, str) and process in by_process:
            found[process[0], int(bus_id, 16)].add(by_process[process])
    return {place: ranks.pop() for place, ranks in found.items() if len(ranks) == 1}


def _is_one_node(logs: Sequence[JobLog], world: int) -> bool:
    """True where NCCL says that all ranks are on one node, or where there are as many local ranks
    as ranks."""
    layouts = {
        event.values.get("n_nodes")
        for _, event in lines_with(logs, LogCode.NCCL_COMM_LAYOUT)
        if event.values.get("n_ranks") == world > 0
    }
    if layouts:
        return layouts == {1}
    local = {log.local_rank for log in logs}
    local |= {event.local_rank for _, event in lines_of_writers(logs)}
    return 0 < world == len(local - {-1}) and local - {-1} == set(range(world))
