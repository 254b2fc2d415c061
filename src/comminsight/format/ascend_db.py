"""The SQLite form of Ascend's profiles (ascend_pytorch_profiler_N.db, msprof_*.db).

Stamps are epoch nanoseconds. Of compute, TASK has the times and COMPUTE_TASK_INFO the names; of
communication, COMMUNICATION_OP has both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from comminsight.errors import InputError
from comminsight.format.ascend import (
    MAX_ROWS,
    NEXT_STEP,
    AscendRank,
    call_of,
    hash_of_group,
    payload_bytes,
)
from comminsight.format.kineto_events import MAX_RANK, whole_number
from comminsight.format.sqlite_file import SqliteFile
from comminsight.model.device_trace import DeviceTrace, SliceSource, TraceSlice

TABLES = frozenset({"COMMUNICATION_OP", "TASK", "STRING_IDS"})
MAX_NS = 1 << 62
COPIES = frozenset({"MEMCPY_ASYNC"})


def is_ascend_db(tables: Iterable[str]) -> bool:
    """Whether a database with these tables is one of Ascend's profiler."""
    return "STRING_IDS" in tables and len(TABLES & {*tables}) > 1


def read_ascend_db(base: SqliteFile, rank: AscendRank, *, path: str = "") -> DeviceTrace:
    """The trace of one rank. Raises InputError naming the file where it tells of several devices,
    or of none."""
    names: dict[Any, str] = {
        key: str(value)[:1024]
        for key, value in base.rows("STRING_IDS", ("id", "value"), limit=MAX_ROWS)
    }
    slices, n_unusable = _calls(base, names, rank)
    more, n_more = _tasks(base, names)
    slices += more
    if not slices:
        raise InputError(
            "has no task of a device and no communication", path=path, place="TASK",
            next_step="profile with ProfilerActivity.NPU",
        )  # fmt: skip
    owners = list(base.rows("RANK_DEVICE_MAP", ("rankId",), limit=1 << 16))
    if len(owners) > 1:
        raise InputError(f"holds {len(owners)} ranks", path=path, next_step=NEXT_STEP)
    own = whole_number(owners[0][0], MAX_RANK) if owners else -1
    return DeviceTrace(
        file=path, slices=tuple(sorted(_stepped(base, slices), key=_by_time)),
        global_rank=own if own >= 0 else rank.global_rank, world_size=rank.world_size,
        groups=tuple(rank.groups.values()), n_unusable=n_unusable + n_more,
    )  # fmt: skip


def _calls(
    base: SqliteFile, names: dict[Any, str], rank: AscendRank
) -> tuple[list[TraceSlice], int]:
    types = dict(base.rows("ENUM_HCCL_DATA_TYPE", ("id", "name"), limit=1 << 10))
    columns = ("opName", "startNs", "endNs", "groupName", "count", "dataType")
    slices, n_unusable = [], 0
    for name, start, end, group, count, dtype in base.rows(
        "COMMUNICATION_OP", columns, limit=MAX_ROWS
    ):
        if not _is_span(start, end):
            n_unusable += 1
            continue
        own = names.get(name, "")
        call = call_of(
            own, hash_of_group(names.get(group, "")), rank,
            size_bytes=payload_bytes(count, str(types.get(dtype, ""))),
        )  # fmt: skip
        slices.append(
            TraceSlice(source=SliceSource.KERNEL, name=own, start_ns=start, end_ns=end, call=call)
        )
    return slices, n_unusable


def _tasks(base: SqliteFile, names: dict[Any, str]) -> tuple[list[TraceSlice], int]:
    """Kernels that compute, and copies; the tasks of communication are those of its ops."""
    computing = dict(base.rows("COMPUTE_TASK_INFO", ("globalTaskId", "name"), limit=MAX_ROWS))
    columns = ("startNs", "endNs", "globalTaskId", "taskType", "streamId")
    slices, n_unusable = [], 0
    communicating = {
        key for (key,) in base.rows("COMMUNICATION_TASK_INFO", ("globalTaskId",), limit=MAX_ROWS)
    }
    for start, end, key, kind, stream in base.rows("TASK", columns, limit=MAX_ROWS):
        is_copy = names.get(kind) in COPIES and key not in communicating
        if key not in computing and not is_copy:
            continue
        if not _is_span(start, end):
            n_unusable += 1
            continue
        source = SliceSource.COPY if is_copy else SliceSource.KERNEL
        name = names.get(kind if is_copy else computing[key], "")
        number = max(0, whole_number(stream, 1 << 33))
        slices.append(
            TraceSlice(source=source, name=name, start_ns=start, end_ns=end, stream=number)
        )
    return slices, n_unusable


def _stepped(base: SqliteFile, slices: list[TraceSlice]) -> Iterable[TraceSlice]:
    """The slices with the step in which they began, by STEP_TIME; the host's steps end before what
    they launched, so the last one reaches on."""
    found = base.rows("STEP_TIME", ("id", "startNs", "endNs"), limit=1 << 20)
    rows = sorted(
        (start, key) for key, start, end in found if _is_span(start, end) and type(key) is int
    )
    if not rows:
        return slices
    starts = np.array([start for start, _ in rows], np.int64)
    places = np.searchsorted(starts, [one.start_ns for one in slices], side="right") - 1
    return [
        TraceSlice(
            source=one.source, name=one.name, start_ns=one.start_ns, end_ns=one.end_ns,
            stream=one.stream, call=one.call, step=rows[place][1] if place >= 0 else -1,
        )
        for one, place in zip(slices, places.tolist(), strict=True)
    ]  # fmt: skip


def _is_span(start: Any, end: Any) -> bool:
    return type(start) is int and type(end) is int and 0 < start <= end < MAX_NS


def _by_time(one: TraceSlice) -> tuple[int, int]:
    return one.start_ns, one.end_ns
