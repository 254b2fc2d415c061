"""Communicators that ranks began to make and, by their logs, never had.

NCCL names a communicator by its pointer in the process, and by a hash that all members share. A
split names the pointer of its parent, which the line that completed the parent joins to a hash.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from comminsight.analysis.log_index import lines_in_order
from comminsight.analysis.log_ranks import INIT_CODES, Process, ranks_of
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

USES = INIT_CODES | {LogCode.NCCL_COLL}


@dataclass(frozen=True, slots=True)
class OpenInit:
    """One rank's beginning without an end. ``comm_hash`` and ``parent_hash`` are "" where no line
    tells them; ``is_split`` where it was to be split off a parent."""

    global_rank: int
    comm_rank: int
    n_ranks: int
    comm_hash: str
    is_split: bool
    parent_hash: str
    event: LogEvent


@dataclass(frozen=True, slots=True)
class LoggedInits:
    """``members`` are the ranks of each complete communicator by its hash."""

    open: tuple[OpenInit, ...]
    members: Mapping[str, frozenset[int]]


def logged_inits(logs: Sequence[JobLog], world_size: int = 0) -> LoggedInits:
    """What the lines of initialisation in ``logs`` say, of ranks that can be told.

    A beginning is open only as the last of its process: one after which that made or used a
    communicator is over, whether or not its end is there; a line may be lost.
    """
    ranks = ranks_of(logs, world_size)
    last: dict[Process, tuple[int, LogEvent]] = {}
    hashes: dict[tuple[Process, str], str] = {}
    members: dict[str, set[int]] = defaultdict(set)
    for log, event in lines_in_order(logs, USES):
        rank = ranks.rank_of(log, event)
        if rank < 0 or "comm" not in event.values:
            continue
        process = (log.file, event.pid)
        last[process] = rank, event
        if event.code is LogCode.NCCL_INIT_COMPLETE:
            comm_hash = str(event.values.get("comm_hash", ""))
            hashes[process, str(event.values["comm"])] = comm_hash
            members[comm_hash].add(rank)
    return LoggedInits(
        open=tuple(
            _open(rank, event, process, hashes)
            for process, (rank, event) in last.items()
            if event.code is LogCode.NCCL_INIT_START
        ),
        members={name: frozenset(own) for name, own in members.items() if name},
    )


def _open(
    rank: int, event: LogEvent, process: Process, hashes: Mapping[tuple[Process, str], str]
) -> OpenInit:
    parent = str(event.values.get("parent", ""))
    return OpenInit(
        global_rank=rank,
        comm_rank=event.comm_rank,
        n_ranks=int(str(event.values.get("n_ranks", 0))),
        comm_hash=str(event.values.get("comm_hash", "")),
        is_split=bool(parent),
        parent_hash=hashes.get((process, parent), ""),
        event=event,
    )
