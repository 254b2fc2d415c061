"""The collectives that NCCL's own log tells of each rank, by communicator (NCCL_DEBUG_SUBSYS=COLL).

A line names its communicator by a pointer that only its own process knows; the lines of its making
give it the hash that all members share. Numbers of the library count the calls of a communicator,
except on one node in later releases, where they stay 0: then nobody can tell that no line is lost.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from comminsight.analysis.log_index import SameLogs, lines_in_order
from comminsight.analysis.log_ranks import LogRanks
from comminsight.model.call_history import CalledOp
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent, LogValue
from comminsight.model.ops import DTYPE_SIZE_BYTES, DType, Op

INIT_CODES = frozenset({LogCode.NCCL_INIT_START, LogCode.NCCL_INIT_COMPLETE})
LINES = INIT_CODES | {LogCode.NCCL_COLL}
OPS = {
    "AllReduce": Op.ALL_REDUCE, "AllGather": Op.ALL_GATHER, "ReduceScatter": Op.REDUCE_SCATTER,
    "Broadcast": Op.BROADCAST, "Bcast": Op.BROADCAST, "Reduce": Op.REDUCE,
}  # fmt: skip
ROOTED = frozenset({Op.BROADCAST, Op.REDUCE})
# ncclDataType_t counts from 0
DTYPES = (
    DType.INT8, DType.UINT8, DType.INT32, DType.UINT32, DType.INT64, DType.UINT64, DType.FLOAT16,
    DType.FLOAT32, DType.FLOAT64, DType.BFLOAT16, DType.FLOAT8_E4M3, DType.FLOAT8_E5M2,
)  # fmt: skip

Process = tuple[str, str, int]  # file, host, process id
Pointer = tuple[str, str, int, str]  # of a communicator in a process
CommKey = tuple[str, int]  # hash or "", number of ranks


@dataclass(frozen=True, slots=True)
class LoggedComm:
    """The calls of one communicator by global rank. ``is_numbered``: the library's own numbers say
    that no call is missing between them. ``n_ranks`` is its size."""

    label: str
    n_ranks: int
    calls: Mapping[int, Sequence[CalledOp]]
    is_numbered: bool
    is_from_start: bool  # the log of each rank holds its making


@dataclass(slots=True)
class _Calls:
    """The lines of one communicator in one process."""

    rank: int
    events: list[LogEvent]


def logged_comms(logs: Sequence[JobLog], ranks: LogRanks) -> list[LoggedComm]:
    """Every communicator of which at least two ranks are known with their calls, where it is known
    which calls meet: they are numbered, or the log holds the making of the communicator."""
    return list(_logged_comms(SameLogs(logs), ranks))


@functools.lru_cache(maxsize=2)  # several rules ask
def _logged_comms(key: SameLogs, ranks: LogRanks) -> tuple[LoggedComm, ...]:
    found: dict[CommKey, list[_Calls]] = defaultdict(list)
    for comm_key, own in _by_process(key.logs, ranks):
        found[comm_key].append(own)
    comms = []
    for place, (comm_key, members) in enumerate(sorted(found.items())):
        known = {own.rank: own.events for own in members}
        if len(known) == len(members) > 1 and -1 not in known:
            comms.append(_comm(place, comm_key, known))
    return tuple(comm for comm in comms if comm.is_numbered or comm.is_from_start)


def _by_process(logs: Sequence[JobLog], ranks: LogRanks) -> Iterator[tuple[CommKey, _Calls]]:
    hashes: dict[Pointer, CommKey] = {}
    lines: dict[Pointer, _Calls] = {}
    for log, event in lines_in_order(logs, LINES):
        values = event.values
        pointer = (log.file, event.host, event.pid, str(values.get("comm", "")))
        if event.code is LogCode.NCCL_COLL:
            if values.get("op") not in OPS:
                continue
            if (known := lines.get(pointer)) is None:
                known = lines[pointer] = _Calls(ranks.rank_of(log, event), [])
            known.events.append(event)
        elif "comm_hash" in values:
            size = int(str(values.get("n_ranks", 0)))
            hashes[pointer] = (str(values["comm_hash"]), size)
    for pointer, own in lines.items():
        size = int(str(own.events[0].values.get("n_ranks", 0)))
        key = hashes.get(pointer)
        if key is not None:
            yield key, own
        elif 1 < size == ranks.world_size and _is_alone(lines, pointer[:3], size):
            yield ("", size), own


def _is_alone(lines: Mapping[Pointer, _Calls], process: Process, size: int) -> bool:
    """True where the process has no second communicator of this size."""
    sizes = [
        own.events[0].values.get("n_ranks") for one, own in lines.items() if one[:3] == process
    ]
    return sizes.count(size) == 1


def _comm(place: int, key: CommKey, known: Mapping[int, Sequence[LogEvent]]) -> LoggedComm:
    numbers = {rank: [_number(event) for event in events] for rank, events in known.items()}
    is_numbered = all(_has_no_gap(own) for own in numbers.values())
    first = max(own[0] for own in numbers.values()) if is_numbered else 0
    meant = _Meanings()
    calls = {
        rank: _called(
            place, [event for event, n in zip(events, numbers[rank], strict=True) if n >= first],
            meant,
        )
        for rank, events in known.items()
    }  # fmt: skip
    return LoggedComm(key[0] or f"{key[1]} ranks", key[1], calls, is_numbered, bool(key[0]))


def _number(event: LogEvent) -> int:
    value = event.values.get("op_count", 0)
    return value if isinstance(value, int) else int(str(value))


def _has_no_gap(numbers: Sequence[int]) -> bool:
    """True where numbers rise by one from call to call; calls of one group may share theirs."""
    steps = {after - before for before, after in pairwise(numbers)}
    return steps <= {0, 1} and (1 in steps or len(numbers) < 2)


def _called(place: int, events: Sequence[LogEvent], meant: _Meanings) -> list[CalledOp]:
    found = []
    for n, event in enumerate(events):
        values = event.values
        told = values["op"], values.get("datatype", -1), values.get("count", 0)
        op, dtype, count, size_bytes, peer = meant[(*told, values.get("root", -1))]
        call = CalledOp(
            comm_id=place, match_seq=n + 1, op=op, dtype=dtype, count=count,
            size_bytes=size_bytes, peer=peer,
        )  # fmt: skip
        found.append(call)
    return found


class _Meanings(dict[tuple[LogValue, ...], tuple[Op, DType, int, int, int]]):
    """By function, element type, count and root as a line has them: (op, dtype, count, size in
    bytes, root). A program makes few kinds of calls, again and again."""

    def __missing__(self, told: tuple[LogValue, ...]) -> tuple[Op, DType, int, int, int]:
        op = OPS[str(told[0])]
        code, count, root = (int(str(one)) for one in told[1:])
        dtype = DTYPES[code] if 0 <= code < len(DTYPES) else DType.UNKNOWN
        size_bytes = count * DTYPE_SIZE_BYTES.get(dtype, 0)
        self[told] = found = (op, dtype, count, size_bytes, root if op in ROOTED else -1)
        return found
