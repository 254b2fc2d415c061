"""trace_view.json of Ascend's profiler: a list of Chrome events, whose stamps are text.

Processes are named by events that may stand anywhere: "Ascend Hardware" has the tasks of the
device, "HCCL" the communication ops (threads "Group N Communication") and their parts (planes).
"""

from __future__ import annotations

import re
from typing import Any, BinaryIO

import msgspec

from comminsight.errors import InputError
from comminsight.format.ascend import (
    MAX_ROWS,
    NEXT_STEP,
    AscendRank,
    call_of,
    nanoseconds,
    payload_bytes,
)
from comminsight.format.expanding import expanded
from comminsight.format.kineto_events import whole_number
from comminsight.model.device_trace import SliceSource, TraceSlice

MAX_VIEW_BYTES = 1 << 29
DEVICE, COMMUNICATION = "Ascend Hardware", "HCCL"
COPY = "MEMCPY_ASYNC"
# tasks that compute; the others are events, notifications and the parts of communication
COMPUTE_TASKS = frozenset(
    {"AI_CORE", "AI_VECTOR_CORE", "AIV_SQE", "AI_CPU", "MIX_AIC", "MIX_AIV", "DSA_SQE"}
)
_GROUP_THREAD = re.compile(r"Group (.{1,256}) Communication")
_HEAD = re.compile(rb'^\[\s*\{[^\[]{0,4096}?"ts":\s*"\d{1,19}\.\d{1,9}"', re.DOTALL)


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: Any = None
    dur: Any = None
    args: dict[str, Any] | None = None


def is_trace_view(head: bytes) -> bool:
    """Whether a file that begins so is such a list."""
    return _HEAD.match(head.lstrip(b"\xef\xbb\xbf \t\r\n")) is not None


def read_trace_view(
    stream: BinaryIO, rank: AscendRank, *, path: str = ""
) -> tuple[list[TraceSlice], int]:
    """The tasks that compute, copies and communication ops, and how many of them have no times.

    Raises InputError naming the file for what is no such list, or has no device in it.
    """
    events = _events(stream, path)
    processes = {one.pid: _named(one) for one in events if one.name == "process_name"}
    threads = {(one.pid, one.tid): _named(one) for one in events if one.name == "thread_name"}
    if not {DEVICE, COMMUNICATION} & {*processes.values()}:
        raise InputError(
            f"has no process {DEVICE!r} or {COMMUNICATION!r}", path=path, next_step=NEXT_STEP
        )
    slices: list[TraceSlice] = []
    n_unusable = 0
    for one in events:
        if one.ph != "X" or (owner := processes.get(one.pid)) not in {DEVICE, COMMUNICATION}:
            continue
        start, length = nanoseconds(one.ts), nanoseconds(one.dur)
        if start is None or length is None:
            n_unusable += 1
            continue
        thread = threads.get((one.pid, one.tid), "")
        made = _task(one) if owner == DEVICE else _op(one, thread, rank)
        if made is not None:
            source, call = made
            slices.append(TraceSlice(
                source=source, name=one.name[:1024], start_ns=start, end_ns=start + length,
                stream=max(0, whole_number(one.tid, 1 << 33)), call=call,
            ))  # fmt: skip
    return slices, n_unusable


def _events(stream: BinaryIO, path: str) -> list[_Event]:
    pieces = expanded(stream, max_bytes=MAX_VIEW_BYTES, path=path, next_step=NEXT_STEP)
    try:
        events = msgspec.json.decode(b"".join(pieces), type=list[_Event])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"is no whole list of events: {error}", path=path, next_step=NEXT_STEP
        ) from error
    if len(events) > MAX_ROWS:
        raise InputError(f"more than {MAX_ROWS:,} events", path=path, next_step=NEXT_STEP)
    return events


def _named(one: _Event) -> str:
    return str((one.args or {}).get("name", ""))


def _task(one: _Event) -> tuple[SliceSource, None] | None:
    if one.name == COPY:
        return SliceSource.COPY, None
    kind = str((one.args or {}).get("Task Type", ""))
    is_compute = kind in COMPUTE_TASKS or kind.removeprefix("KERNEL_") in COMPUTE_TASKS
    return (SliceSource.KERNEL, None) if is_compute else None


def _op(one: _Event, thread: str, rank: AscendRank) -> tuple[SliceSource, Any] | None:
    found = _GROUP_THREAD.search(thread)
    if found is None:  # a plane: part of an op
        return None
    args = one.args or {}
    size_bytes = payload_bytes(args.get("count"), str(args.get("data_type", "")))
    group = found[1] if found[1] in rank.groups else ""
    return SliceSource.KERNEL, call_of(one.name, group, rank, size_bytes=size_bytes)
