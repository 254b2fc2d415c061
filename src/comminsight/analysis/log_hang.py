"""How far each rank came by the lines of watchdogs alone, as an observed hang.

Counters of a group place its ranks: who had not enqueued what others wait in is absent, and who
says nothing is unknown. A time limit without counters places nobody. Groups but that of all ranks
may have members of which no line speaks, and so has that one where nobody tells the world size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from comminsight.analysis.log_index import events_with, lines_with
from comminsight.analysis.log_ranks import LogRanks, is_default_group
from comminsight.model.hang import HangEvent, InFlightOp, Liveness, Progress, RankState
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.ops import CommRole, Op, RecordKind
from comminsight.model.topology import Communicator

MS = 1_000_000
OPS = {
    "ALLREDUCE": Op.ALL_REDUCE, "BROADCAST": Op.BROADCAST, "REDUCE": Op.REDUCE,
    "ALLGATHER": Op.ALL_GATHER, "_ALLGATHER_BASE": Op.ALL_GATHER, "GATHER": Op.GATHER,
    "SCATTER": Op.SCATTER, "REDUCE_SCATTER": Op.REDUCE_SCATTER, "BARRIER": Op.BARRIER,
    "_REDUCE_SCATTER_BASE": Op.REDUCE_SCATTER, "ALLTOALL": Op.ALL_TO_ALL,
    "ALLTOALL_BASE": Op.ALL_TO_ALL,
}  # fmt: skip
P2P = frozenset({"SEND", "RECV", "COALESCED"})  # versions number these with the collectives
COUNTERS = frozenset({LogCode.TORCH_PROGRESS, LogCode.TORCH_DUMP_SIGNAL})
Group = tuple[str, str]  # name and id; ("", "") is the group of all ranks


@dataclass(frozen=True, slots=True)
class Waited:
    """The line with which the watchdog of ``rank`` gave up: ``ran_ns`` is 0 where it is untold."""

    rank: int
    seq: int
    op: str
    n_elements: int
    limit_ns: int
    ran_ns: int
    event: LogEvent


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters of one group as one rank told them; ``seq`` is the op it waits in, 0 for none."""

    rank: int
    group: Group
    comm_rank: int
    seq: int
    enqueued: int
    completed: int


@dataclass(frozen=True, slots=True)
class LogHang:
    """``event`` holds the ranks that told counters, ``waited`` every time limit that ran out, and
    ``stood`` those that tell of more time than a watchdog that runs lets pass."""

    event: HangEvent
    waited: tuple[Waited, ...] = ()
    stood: tuple[Waited, ...] = ()
    counted: tuple[Counted, ...] = ()
    is_world_known: bool = False


@dataclass(slots=True)
class _Groups:
    comm_ids: dict[Group, int] = field(default_factory=dict)
    communicators: list[Communicator] = field(default_factory=list)


def log_hang(
    logs: Sequence[JobLog], ranks: LogRanks, world_size: int, *, has_stood: float
) -> LogHang:
    """The hang that ``logs`` tell. A watchdog that waited ``has_stood`` times its limit and more
    did not run in between: what its rank says is left out."""
    waited = tuple(_waits(logs, ranks))
    stood = tuple(one for one in waited if one.ran_ns > has_stood * one.limit_ns > 0)
    silent = {one.rank for one in stood}
    counted = tuple(one for one in _counts(logs, ranks, waited) if one.rank not in silent)
    known = max(world_size, ranks.world_size)
    seen = {one.rank for one in counted} | {one.rank for one in waited if one.rank >= 0}
    world = max([known, *(1 + rank for rank in seen)])
    groups = _groups(counted, world, is_known=known == world)
    in_flight = tuple(_ops(counted, waited, groups))
    event = HangEvent(
        observed_mono_ns=0,
        observed_real_ns=0,
        overdue_limit_ns=min((one.limit_ns for one in waited if one.limit_ns), default=0),
        world_size=world,
        ranks=tuple(
            RankState(global_rank=rank, liveness=Liveness.UNKNOWN, host=ranks.host_of(rank))
            for rank in sorted({one.rank for one in counted})
        ),
        in_flight=in_flight,
        progress=tuple(_progress(counted, waited, groups)),
        communicators=tuple(groups.communicators),
        is_past=True,
    )
    return LogHang(event, waited, stood, counted, is_world_known=known == world)


def _waits(logs: Sequence[JobLog], ranks: LogRanks) -> Iterator[Waited]:
    for log, event in lines_with(logs, LogCode.TORCH_WATCHDOG_TIMEOUT):
        yield Waited(
            ranks.rank_of(log, event),
            _number(event, "seq"),
            str(event.values.get("op", "")),
            _number(event, "numel_in"),
            _number(event, "timeout_ms") * MS,
            _number(event, "ran_ms") * MS,
            event,
        )


def _counts(logs: Sequence[JobLog], ranks: LogRanks, waited: Sequence[Waited]) -> Iterator[Counted]:
    """One entry per rank and group, that of its oldest op."""
    found: dict[tuple[int, Group], Counted] = {}
    for log, event in lines_with(logs, *COUNTERS):
        rank = ranks.rank_of(log, event)
        if rank < 0 or "last_enqueued" not in event.values:
            continue
        one = _counted(rank, event)
        before = found.get((rank, one.group))
        if before is None or (one.seq and not 0 < before.seq <= one.seq):
            found[rank, one.group] = one
    yield from found.values()
    if not found:
        yield from _desynced(logs, ranks, waited)


def _counted(rank: int, event: LogEvent) -> Counted:
    enqueued = max(0, _number(event, "last_enqueued"))
    completed = max(0, _number(event, "last_completed"))
    seq = _number(event, "seq")
    if not seq and "last_completed" in event.values and completed < enqueued:
        seq = completed + 1
    group = ("", "") if is_default_group(event) else _group(event)
    return Counted(rank, group, event.comm_rank, seq, enqueued, min(completed, max(0, seq - 1)
                   if seq else completed))  # fmt: skip


def _group(event: LogEvent) -> Group:
    return str(event.values.get("pg", "")), str(event.values.get("pg_guid", ""))


def _desynced(
    logs: Sequence[JobLog], ranks: LogRanks, waited: Sequence[Waited]
) -> Iterator[Counted]:
    """What reports on ranks out of step say, where they can only speak of the group of all ranks:
    the ranks in them are those of a group."""
    told: dict[int, Counted] = {}
    for event in events_with(logs, [LogCode.TORCH_DESYNC_STUCK, LogCode.TORCH_DESYNC_ABSENT]):
        named = event.values.get("ranks", ())
        seq = _number(event, "seq")
        for rank in named if isinstance(named, tuple | list) else ():
            if event.code is LogCode.TORCH_DESYNC_STUCK:
                told.setdefault(rank, Counted(rank, ("", ""), rank, seq, seq, seq - 1))
            else:
                done = _number(event, "last_completed")
                told[rank] = Counted(rank, ("", ""), rank, 0, done, done)
    is_of_all = ranks.world_size > 1 and len(told) == ranks.world_size
    if is_of_all and set(told) == set(range(ranks.world_size)):
        yield from told.values()


def _groups(counted: Iterable[Counted], world: int, *, is_known: bool) -> _Groups:
    """The groups of which each place is told by one rank at most."""
    places: dict[Group, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for one in counted:
        places[one.group][one.comm_rank].add(one.rank)
    groups = _Groups()
    for group, members in sorted(places.items()):
        if group == ("", ""):
            told: tuple[int, ...] = tuple(range(world)) + (() if is_known else (-1,))
        elif any(len(own) > 1 for own in members.values()) or -1 in members:
            continue
        else:
            size = max(members) + 1
            told = tuple(next(iter(members.get(place, {-1}))) for place in range(size))
            told += (-1,)  # nobody tells how many there are
        comm_id = groups.comm_ids[group] = len(groups.communicators)
        name = group[0] or "default_pg"
        role = CommRole.UNKNOWN if group[0] else CommRole.GLOBAL
        groups.communicators.append(
            Communicator(comm_id=comm_id, comm_hash=comm_id, ordinal=0, name=name, role=role,
                         members=told)
        )  # fmt: skip
    return groups


def _mixed(counted: Iterable[Counted], waited: Iterable[Waited]) -> set[Group]:
    """Groups in which sends and receives were waited for: they may have moved the counters."""
    in_p2p = {(one.rank, one.seq) for one in waited if one.op in P2P}
    return {one.group for one in counted if (one.rank, one.seq) in in_p2p}


def _ops(
    counted: Sequence[Counted], waited: Sequence[Waited], groups: _Groups
) -> Iterator[InFlightOp]:
    mixed = _mixed(counted, waited)
    by_place: dict[tuple[int, int], list[Waited]] = defaultdict(list)
    for gave_up in waited:
        by_place[gave_up.rank, gave_up.seq].append(gave_up)
    instances: dict[tuple[Group, int], list[Counted]] = defaultdict(list)
    for one in counted:
        if one.seq and one.group in groups.comm_ids and one.group not in mixed:
            instances[one.group, one.seq].append(one)
    for (group, seq), members in instances.items():
        lines = {m.rank: by_place.get((m.rank, seq), []) for m in members}
        names = {own[0].op if len(own) == 1 else "" for own in lines.values()}
        is_told = "" not in names  # one that is not told is no other op than the others'
        for member in members:
            own = lines[member.rank]
            line = own[0] if len(own) == 1 else None
            yield InFlightOp(
                global_rank=member.rank, comm_id=groups.comm_ids[group],
                kind=RecordKind.COLLECTIVE, op_seq=seq, match_seq=seq, start_ns=0,
                op=OPS.get(line.op, Op.UNKNOWN) if line is not None and is_told else Op.UNKNOWN,
                age_ns=max((one.ran_ns or one.limit_ns for one in waited), default=0),
                count=line.n_elements if line is not None else 0,
                is_overdue=True,
            )  # fmt: skip


def _progress(
    counted: Sequence[Counted], waited: Sequence[Waited], groups: _Groups
) -> Iterator[Progress]:
    mixed = _mixed(counted, waited)
    for one in counted:
        if one.group in groups.comm_ids:
            yield Progress(
                global_rank=one.rank, comm_id=groups.comm_ids[one.group],
                last_entered=one.enqueued, last_done=one.completed,
                is_current=one.group not in mixed,
            )  # fmt: skip


def _number(event: LogEvent, name: str) -> int:
    value = event.values.get(name, 0)
    return value if isinstance(value, int) else 0
