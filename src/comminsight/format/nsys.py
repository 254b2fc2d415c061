"""Nsight Systems exports (``nsys export --type sqlite``): what each GPU of each process did.

Stamps are nanoseconds since the session began, put on the epoch where the export says when that
was. A table is there only if it has rows, and columns come and go with the version: what is absent
is unknown. Launches are not counted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from comminsight.errors import InputError
from comminsight.format.kineto_events import MAX_NS, whole_number
from comminsight.format.nsys_nvtx import MAX_ROWS, NcclCalls, process_of
from comminsight.format.sqlite_file import SqliteFile
from comminsight.model.device_trace import CollectiveCall, DeviceTrace, SliceSource, TraceSlice

NEXT_STEP = "give what `nsys export --type sqlite` wrote, whole, of a capture with CUDA trace"
KERNELS, COPIES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS, RUNTIME = "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_RUNTIME"
_MARKS = ("StringIds", "TARGET_INFO_SESSION_START_TIME", "META_DATA_EXPORT", KERNELS)
_RANK_IN_NAME = re.compile(r"rank[_\-.=]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)
_LIBRARY = re.compile(r"[nr]ccl", re.IGNORECASE)
_Owner = tuple[int, int]  # process, device


def is_nsys(tables: Iterable[str]) -> bool:
    """Whether a database with these tables is an export of Nsight Systems."""
    return sum(mark in {*tables} for mark in _MARKS) > 1


def read_nsys(base: SqliteFile, *, path: str = "") -> tuple[DeviceTrace, ...]:
    """One trace for each device that a process used, by both. The rank is that of the largest
    communicator that the process initialised, as NCCL's ranges tell, or that of the file's name.

    Raises InputError naming the file where no kernel and no copy stands in it.
    """
    names = {
        key: str(value)[:1024]
        for key, value in base.rows("StringIds", ("id", "value"), limit=MAX_ROWS)
    }
    calls = NcclCalls(base, names)
    found: dict[_Owner, list[TraceSlice]] = defaultdict(list)
    unusable: dict[_Owner, int] = defaultdict(int)
    epoch_ns = _epoch_ns(base)
    for owner, one in _slices(base, names, calls):
        if one is None:
            unusable[owner] += 1
        else:
            found[owner].append(_moved(one, epoch_ns))
    if not found:
        raise InputError(f"has no rows in {KERNELS} and {COPIES}", path=path, next_step=NEXT_STEP)
    return tuple(_traces(found, unusable, calls.ranks, path))


def _slices(
    base: SqliteFile, names: dict[Any, str], calls: NcclCalls
) -> Iterator[tuple[_Owner, TraceSlice | None]]:
    """Every interval of a device with its owner; None for one whose stamps are no times."""
    launches = _launches(base)
    columns = (
        "start",
        "end",
        "deviceId",
        "streamId",
        "globalPid",
        "correlationId",
        "demangledName",
        "shortName",
    )
    for start, end, device, stream, owner, key, name, short in base.rows(
        KERNELS, columns, limit=MAX_ROWS
    ):
        process = process_of(owner) if type(owner) is int else -1
        said = names.get(name) or names.get(short, "")
        call = _call_of(said, launches.get((process, key)), calls)
        yield _slice(SliceSource.KERNEL, said, (start, end), stream, call, (process, device))
    for table, said in ((COPIES, "memcpy"), (SETS, "memset")):
        for start, end, device, stream, owner in base.rows(table, columns[:5], limit=MAX_ROWS):
            process = process_of(owner) if type(owner) is int else -1
            yield _slice(SliceSource.COPY, said, (start, end), stream, None, (process, device))


def _call_of(name: str, launch: tuple[Any, int] | None, calls: NcclCalls) -> CollectiveCall | None:
    """The call behind a kernel of the library; kernels of others are launched within calls too."""
    return calls.at(*launch) if launch is not None and _LIBRARY.search(name) else None


def _slice(
    source: SliceSource, name: str, span: tuple[Any, Any], stream: Any,
    call: CollectiveCall | None, owner: tuple[int, Any],
) -> tuple[_Owner, TraceSlice | None]:  # fmt: skip
    start, end = span
    key = owner[0], whole_number(owner[1], 1 << 16)
    if type(start) is not int or type(end) is not int or not 0 <= start <= end < MAX_NS:
        return key, None
    return key, TraceSlice(
        source=source, name=name, start_ns=start, end_ns=end, call=call,
        stream=max(0, whole_number(stream, 1 << 33)),
    )  # fmt: skip


def _launches(base: SqliteFile) -> dict[tuple[int, Any], tuple[Any, int]]:
    """(thread, start) of the call of the runtime behind each correlation of a process."""
    columns = ("start", "globalTid", "correlationId")
    return {
        (process_of(thread), key): (thread, start)
        for start, thread, key in base.rows(RUNTIME, columns, limit=MAX_ROWS)
        if type(thread) is int and type(start) is int
    }


def _epoch_ns(base: SqliteFile) -> int:
    """When the session began; 0 unknown."""
    for (value,) in base.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",), limit=16):
        return max(0, whole_number(value, 1 << 61))
    return 0


def _moved(one: TraceSlice, by_ns: int) -> TraceSlice:
    return TraceSlice(
        source=one.source, name=one.name, start_ns=one.start_ns + by_ns,
        end_ns=one.end_ns + by_ns, stream=one.stream, call=one.call,
    )  # fmt: skip


def _traces(
    found: dict[_Owner, list[TraceSlice]], unusable: dict[_Owner, int],
    ranks: dict[int, tuple[int, int]], path: str,
) -> Iterator[DeviceTrace]:  # fmt: skip
    named = _RANK_IN_NAME.findall(path.rpartition("/")[2])
    n_devices: dict[int, int] = defaultdict(int)
    for process, _ in found:
        n_devices[process] += 1
    for owner, slices in sorted(found.items()):
        rank, world = ranks.get(owner[0], (-1, 0))
        if n_devices[owner[0]] > 1:  # one process drives several devices: which is which rank?
            rank, world = -1, 0
        if rank < 0 and named and len(found) == 1:
            rank = int(named[-1])
        yield DeviceTrace(
            file=path, slices=tuple(sorted(slices, key=_by_time)), global_rank=rank,
            world_size=world, is_world_inferred=world > 0, n_unusable=unusable[owner],
        )  # fmt: skip


def _by_time(one: TraceSlice) -> tuple[int, int]:
    return one.start_ns, one.end_ns
