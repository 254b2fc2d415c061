"""How far each rank came in making the communicator of all ranks, by NCCL's own lines."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from comminsight.analysis.log_faults import ECHOES, TIMEOUTS
from comminsight.analysis.log_index import SameLogs, events_with, lines_of_writers, lines_with
from comminsight.analysis.log_order import apart_at_least_ns
from comminsight.analysis.log_ranks import INIT_CODES, LogRanks, short_host
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import ClockKind, LogCode, LogEvent

# what only a rank with a communicator writes
OPS = frozenset(
    {
        LogCode.TORCH_WATCHDOG_TIMEOUT, LogCode.TORCH_PROGRESS, LogCode.TORCH_DUMP_SIGNAL,
        LogCode.TORCH_WATCHDOG_STUCK, LogCode.TORCH_ASYNC_ERROR, LogCode.TORCH_DESYNC_ABSENT,
        LogCode.TORCH_DESYNC_STUCK, LogCode.NCCL_COLL, LogCode.NCCL_IB_COMPLETION,
    }
)  # fmt: skip
GIVEN_UP = ECHOES | TIMEOUTS | {LogCode.TORCH_UNIQUE_ID, LogCode.NCCL_CONNECT_FAILED}


class InitPhase(StrEnum):
    """The last phase that a rank showed. NOT_BEGUN needs lines of the rank that show none."""

    NOT_BEGUN = "not_begun"
    BEGUN = "begun"
    CONNECTING = "connecting"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class LogInit:
    """``phases`` by rank; a rank without a line of its own is not in it. ``local_ranks`` are the
    places on their nodes. ``has_stopped``: something gave up, or time went by, after it began.
    ``lasted_ns`` is how long at least, 0 where no stamp tells. ``has_ops``: some rank waited in an
    operation, so that its communicator was there. ``spoke_later`` are ranks whose own log has a
    stamp ``patience_ns`` after the first rank began: had they begun, it would show it.
    ``is_whole``: all that began wrote the same lines, so that none of theirs is lost."""

    world_size: int
    phases: dict[int, InitPhase]
    local_ranks: dict[int, int]
    hosts: dict[int, str]
    has_stopped: bool
    lasted_ns: int
    has_ops: bool
    spoke_later: frozenset[int]
    is_whole: bool

    def ranks(self, *phases: InitPhase) -> tuple[int, ...]:
        """The ranks that came so far and no further, ascending."""
        return tuple(sorted(r for r, phase in self.phases.items() if phase in phases))


def log_init(logs: Sequence[JobLog], ranks: LogRanks, *, patience_ns: int) -> LogInit:
    """The phases of the communicator of all ranks, one that was not split off another; it stands
    still where it has not ended ``patience_ns`` after it began."""
    return _log_init(SameLogs(logs), ranks, patience_ns)


@dataclass(slots=True)
class _Shown:
    """What the lines of each rank show."""

    begun: dict[int, LogEvent] = field(default_factory=dict)
    phases: dict[int, InitPhase] = field(default_factory=dict)
    local_ranks: dict[int, int] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    written: dict[int, Counter[LogCode]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, rank: int, event: LogEvent, world: int) -> None:
        if event.code is LogCode.NCCL_COLL:  # it tells of no phase
            self.phases.setdefault(rank, InitPhase.NOT_BEGUN)
            return
        phase = _phase(event, world)
        self.written[rank][event.code] += phase is not InitPhase.NOT_BEGUN
        before = self.phases.get(rank, InitPhase.NOT_BEGUN)
        self.phases[rank] = phase if _ORDER[phase] > _ORDER[before] else before
        if event.code is LogCode.NCCL_INIT_START and phase is InitPhase.BEGUN:
            self.begun.setdefault(rank, event)
        if (local := _local_rank(event, world)) >= 0:
            self.local_ranks[rank] = local
        if event.host and event.code in INIT_CODES:
            self.hosts[rank] = short_host(event.host)


@functools.lru_cache(maxsize=2)
def _log_init(key: SameLogs, ranks: LogRanks, patience_ns: int) -> LogInit:
    logs, shown = key.logs, _Shown()
    for log, event in lines_of_writers(logs):
        if (rank := ranks.rank_of(log, event)) >= 0:
            shown.add(rank, event, ranks.world_size)
    for log in logs:
        if log.rank >= 0:
            shown.phases.setdefault(log.rank, InitPhase.NOT_BEGUN)
    firsts = _firsts(shown.begun.values())
    lasted = {log.file: _lasted_ns(log, firsts) for log in logs} if firsts else {}
    lasted_ns = max(lasted.values(), default=0)
    gave_up = any(True for _ in events_with(logs, GIVEN_UP))
    kinds = {tuple(sorted((+shown.written[rank]).items())) for rank in shown.begun}
    return LogInit(
        ranks.world_size, shown.phases, shown.local_ranks, shown.hosts,
        has_stopped=gave_up or lasted_ns >= patience_ns, lasted_ns=lasted_ns,
        has_ops=any(True for _ in events_with(logs, OPS)),
        spoke_later=frozenset(
            log.rank for log in logs if log.rank >= 0 and lasted.get(log.file, 0) >= patience_ns
        ),
        is_whole=len(kinds) == 1,
    )  # fmt: skip


_ORDER = {phase: place for place, phase in enumerate(InitPhase)}
_CONNECTING = frozenset(
    {LogCode.NCCL_CHANNEL, LogCode.NCCL_CHANNEL_RANKS, LogCode.NCCL_RING, LogCode.NCCL_TREES,
     LogCode.NCCL_CONNECTED, LogCode.NCCL_COMM_LAYOUT}
)  # fmt: skip


# a rank whose transport complains has begun
_COMPLAINTS = frozenset(
    {LogCode.NCCL_SOCKET_FAILED, LogCode.NCCL_CONNECT_FAILED, LogCode.NCCL_CONNECTION_CLOSED,
     LogCode.NCCL_PROXY_FAILED, LogCode.NCCL_RESULT_PATH, LogCode.NCCL_IB_CALL,
     LogCode.NCCL_QP_MODIFY, LogCode.NCCL_ABORT}
)  # fmt: skip


def _phase(event: LogEvent, world: int) -> InitPhase:
    if event.code in _CONNECTING:
        return InitPhase.CONNECTING
    if event.code in _COMPLAINTS:
        return InitPhase.BEGUN
    is_whole = event.values.get("n_ranks") == world and "parent" not in event.values
    if event.code not in INIT_CODES or not is_whole:
        return InitPhase.NOT_BEGUN
    is_complete = event.code is LogCode.NCCL_INIT_COMPLETE
    return InitPhase.COMPLETE if is_complete else InitPhase.BEGUN


def _local_rank(event: LogEvent, world: int) -> int:
    """The place on its node, as the layout of the communicator or the device tells it."""
    if event.values.get("n_ranks") != world:
        return -1
    value = event.values.get("comm_local_rank", event.values.get("cuda_device", -1))
    return value if isinstance(value, int) else -1


def _firsts(begun: Iterable[LogEvent]) -> dict[str, LogEvent]:
    """The earliest beginning of all, under "", and that of each host and of each file."""
    firsts: dict[str, LogEvent] = {}
    for event in begun:
        for place in {"", short_host(event.host), event.file}:
            first = firsts.setdefault(place, event)
            if event.time.ns < first.time.ns:
                firsts[place] = event
    return firsts


def _lasted_ns(log: JobLog, firsts: dict[str, LogEvent]) -> int:
    """From the first line of init to the last stamp of the log, where the two compare: that of any
    rank, of the same host, or of the same file."""
    end = _last_stamp(log)
    if end is None:
        return 0
    places = {"", short_host(end.host), end.file} & firsts.keys()
    return max((apart_at_least_ns(firsts[place], end) or 0 for place in places), default=0)


def _last_stamp(log: JobLog) -> LogEvent | None:
    """The latest stamp of the log as a line of it; None where it has none."""
    times = [event.time for event in log.events]
    times = [time for time in (*times, log.tail.time) if time.kind is not ClockKind.NONE]
    if not times:
        return None
    last = max(times, key=lambda time: time.ns)
    return LogEvent(
        code=LogCode.NCCL_WARN, file=log.file, line=0, text="", time=last, host=log.host
    )


def every_nth(local_ranks: Sequence[int]) -> int:
    """The distance of places that stand equally far apart, 0 where they do not."""
    steps = {b - a for a, b in itertools.pairwise(local_ranks)}
    return steps.pop() if len(steps) == 1 else 0


def claimed_twice(logs: Sequence[JobLog], ranks: LogRanks) -> dict[int, dict[str, set[str]]]:
    """Ranks (by what their prefix or file calls them) that made communicators of one size under
    several ids on several hosts: host to ids, by rank."""
    found: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for log, event in lines_with(logs, LogCode.NCCL_INIT_START):
        rank = event.rank if event.rank >= 0 else log.rank
        comm_hash = event.values.get("comm_hash")
        is_first = "parent" not in event.values
        if rank >= 0 and is_first and event.comm_rank == rank and isinstance(comm_hash, str):
            found[rank][short_host(event.host)].add(comm_hash)
    return {
        rank: dict(hosts)
        for rank, hosts in found.items()
        if len(hosts) > 1 and _is_apart(list(hosts.values()))
    }


def _is_apart(ids: list[set[str]]) -> bool:
    return all(not (a & b) for place, a in enumerate(ids) for b in ids[place + 1 :])
