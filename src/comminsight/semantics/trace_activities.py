"""Intervals of a profiler's trace as activities: which are communication, of which op and group.

A kernel is communication by its name, or because the trace states a collective on it. Of the rest,
what names no wait, no copy and no collective computes. A group is known across ranks by its name
and members; where these are unknown, ops are matched by order only if no other group is possible.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from comminsight.model.activity import Activity, ActivityKind, LaunchCount
from comminsight.model.device_trace import CollectiveCall, DeviceTrace, SliceSource, TraceSlice
from comminsight.model.ops import Op
from comminsight.semantics.kernel_kind import kind_of_kernel

NAMELESS = frozenset({"", "undefined"})
_NO_CALL = CollectiveCall()
_OF_LIBRARY = re.compile(r"^(?:void )?(?:nccl|rccl)(?:Dev)?(?:Kernel)?[_:]", re.IGNORECASE)
_OP_WORDS = (
    ("allreduce", Op.ALL_REDUCE), ("reducescatter", Op.REDUCE_SCATTER),
    ("allgather", Op.ALL_GATHER), ("alltoall", Op.ALL_TO_ALL), ("broadcast", Op.BROADCAST),
)  # fmt: skip
# kernels of no known library that may move data between ranks: no compute, and nothing else known
_LIKE_COMMUNICATION = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|p2p|nccl|rccl|hccl|oneccl"
)


def activities_of(trace: DeviceTrace) -> Iterator[Activity]:
    """The activities of one rank, in the order of the trace. Where it marks steps, what was
    launched outside all of them is left out: the window cuts through it."""
    is_lone = _is_one_group(trace)
    has_steps = any(one.step >= 0 for one in trace.slices)
    classes: dict[tuple[object, ...], _Class] = {}
    for one in trace.slices:
        if has_steps and one.step < 0:
            continue
        key = one.source, one.name, one.call, one.stream
        if (found := classes.get(key)) is None:
            found = classes[key] = _class_of(one, trace, is_lone=is_lone)
        yield Activity(
            global_rank=trace.global_rank,
            kind=found.kind,
            name=one.name,
            start_ns=one.start_ns,
            end_ns=one.end_ns,
            stream=one.stream,
            op=found.op,
            size_bytes=found.size_bytes,
            dtype=one.call.dtype if one.call else 0,
            comm_label=found.label,
            step=one.step,
            is_library=found.is_library,
        )


@dataclass(frozen=True, slots=True)
class _Class:
    """What is the same of all intervals of one name, call and stream."""

    kind: ActivityKind
    is_library: bool
    op: Op
    size_bytes: int
    label: str


def _class_of(one: TraceSlice, trace: DeviceTrace, *, is_lone: bool) -> _Class:
    kind, is_library = kind_of(one)
    if kind is not ActivityKind.COMMUNICATION:
        return _Class(kind, is_library, Op.UNKNOWN, 0, "")
    call = one.call or _NO_CALL
    label = _label(call, one, trace, is_lone=is_lone)
    return _Class(kind, is_library, call.op or op_of_kernel(one.name), call.size_bytes, label)


def launches_of(trace: DeviceTrace) -> Iterator[LaunchCount]:
    """One where launches were recorded and the rank is known."""
    if trace.n_launches and trace.global_rank >= 0:
        yield LaunchCount(
            global_rank=trace.global_rank,
            n_launches=trace.n_launches,
            n_kernels=trace.n_launched_kernels,
        )


def kind_of(one: TraceSlice) -> tuple[ActivityKind, bool]:
    """The class of an interval, and whether a communication library wrote it."""
    if one.source is SliceSource.HOST_COLLECTIVE:
        return ActivityKind.COMMUNICATION, True
    if one.source is SliceSource.COPY:
        return ActivityKind.COPY, True
    kind, is_library = _kind_of_name(one.name)
    is_open = kind in {ActivityKind.OTHER, ActivityKind.COMPUTE}
    if is_open and one.call is not None and one.call.is_own:
        return ActivityKind.COMMUNICATION, True
    return kind, is_library


@functools.lru_cache(maxsize=4096)
def _kind_of_name(name: str) -> tuple[ActivityKind, bool]:
    kind, is_library = kind_of_kernel(name)
    if kind is ActivityKind.OTHER and name and not _LIKE_COMMUNICATION.search(name.lower()):
        return ActivityKind.COMPUTE, True
    return kind, is_library


def op_of_kernel(name: str) -> Op:
    """The op that a library's kernel is named after; UNKNOWN for kernels of any op."""
    if _OF_LIBRARY.match(name) is None:
        return Op.UNKNOWN
    word = name.partition("(")[0].replace("_", "").lower()
    return next((op for text, op in _OP_WORDS if text in word), Op.UNKNOWN)


def _is_one_group(trace: DeviceTrace) -> bool:
    """True where every collective of the job must be of one and the same group: the header lists
    one, of the whole world, or there are two ranks and all runs on one stream."""
    if trace.groups:
        sizes = [one.size for one in trace.groups]
        return len(sizes) == 1 and sizes[0] == trace.world_size > 1
    streams = {s.stream for s in trace.slices if kind_of(s)[0] is ActivityKind.COMMUNICATION}
    return trace.world_size == 2 and len(streams) <= 1


def _label(call: CollectiveCall, one: TraceSlice, trace: DeviceTrace, *, is_lone: bool) -> str:
    if call.group and call.members:
        desc = "" if call.desc in NAMELESS else f"{call.desc}:"
        return f"{desc}{call.group} ({call.members})"
    if is_lone:
        return ""
    named = call.group or f"stream {one.stream}"
    return f"{named} of rank {trace.global_rank}"
