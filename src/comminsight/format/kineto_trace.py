"""Intervals of devices out of the events of one process, joined to their launches and calls.

A kernel is tied to its launch by ``correlation``, to the call behind it by what stands on itself,
then by ``External id``, then by the call that was open on the thread when it was launched. These
numbers are each process's own; none of them is ever compared between ranks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from comminsight.errors import InputError
from comminsight.format.kineto_events import Args, Event, members_of, nanoseconds, whole_number
from comminsight.format.torch_names import element_bytes, op_of_call
from comminsight.model.device_trace import (
    CollectiveCall,
    DeviceTrace,
    SliceSource,
    TraceGroup,
    TraceSlice,
)
from comminsight.model.ops import Op

ONE_RANK_STEP = "give the trace of each rank in a file of its own, as torch.profiler wrote it"
MAX_COUNT = 1 << 62
MAX_OPEN_CALLS = 8  # calls within calls on one thread
_DEVICE = {
    "kernel": SliceSource.KERNEL, "gpu_memcpy": SliceSource.COPY, "gpu_memset": SliceSource.COPY,
    "memcpy": SliceSource.COPY, "memset": SliceSource.COPY,
}  # fmt: skip
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "xpu_runtime"})
_HOST = _RUNTIME | {"cpu_op", "operator"}
_STEP = re.compile(r"ProfilerStep#(\d{1,9})", re.ASCII)
_LAUNCH = re.compile(r"(?:cuda|hip|cu)(?:Ext)?(?:Module)?LaunchKernel|LaunchCooperative", re.ASCII)
_GRAPH = re.compile(r"BeginCapture|Graph(?:Launch|Instantiate)", re.ASCII)
_LIBRARY = re.compile(r"[nr]ccl", re.IGNORECASE)
PARAMETERS = "record_param_comms"
HOST_COLLECTIVE = "gloo:"


class UnusableTraceError(InputError):
    """A whole trace that is of no use; ``reason`` is the code that says why."""

    def __init__(self, message: str, *, path: str, next_step: str, reason: str) -> None:
        super().__init__(message, path=path, next_step=next_step)
        self.reason = reason


@dataclass(slots=True)
class _Found:
    """The events that matter, by what they are."""

    device: list[tuple[SliceSource, Event]] = field(default_factory=list)
    gloo: list[Event] = field(default_factory=list)
    runtime: dict[Any, Event] = field(default_factory=dict)  # by correlation
    calls: dict[Any, Event] = field(default_factory=dict)  # by External id
    by_thread: dict[Any, list[tuple[int, int, Event]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    steps: list[tuple[int, int, int]] = field(default_factory=list)  # start, end, number
    processes: set[Any] = field(default_factory=set)
    is_graph: bool = False
    n_unusable: int = 0


def device_trace(
    events: list[Event], base_ns: int, groups: tuple[TraceGroup, ...], path: str
) -> DeviceTrace:
    """The trace without its rank; takes the events out of their list.

    Raises UnusableTraceError for events of several processes, and where there is neither device
    nor collective.
    """
    n_events = len(events)
    found = _sorted(events)
    events.clear()  # most are of no use, and they hold the bytes they were read from
    _check_one_process(found, path)
    slices = _slices(found, base_ns, {one.name: one for one in groups})
    n_launches, n_joined = _launches(found)
    if not (slices or n_launches):
        raise UnusableTraceError(
            f"none of its {n_events:,} events is of a device or a collective", path=path,
            next_step="profile with ProfilerActivity.CUDA, or give the trace of a rank that has it",
            reason="unread.no_devices",
        )  # fmt: skip
    return DeviceTrace(
        file=path, slices=slices, groups=groups, n_launches=n_launches,
        n_launched_kernels=n_joined, n_unusable=found.n_unusable,
    )  # fmt: skip


def _sorted(events: Sequence[Event]) -> _Found:
    found = _Found()
    for event in events:
        if event.ph == "X":
            _place(event, found)
    for calls in found.by_thread.values():
        calls.sort(key=lambda call: call[:2])
    found.steps.sort()
    return found


def _place(event: Event, found: _Found) -> None:
    category = event.cat.lower()
    if category in _HOST:
        found.processes.add(_key(event.pid))
    if source := _DEVICE.get(category):
        found.device.append((source, event))
    elif category in _RUNTIME:
        found.is_graph |= _GRAPH.search(event.name) is not None
        if event.args is not None:
            found.runtime[_key(event.args.correlation)] = event
    elif event.name == PARAMETERS:
        _place_call(event, found)
    elif category == "user_annotation":
        if event.name.startswith(HOST_COLLECTIVE):
            found.gloo.append(event)
        elif (step := _STEP.fullmatch(event.name)) and (span := _span(event)):
            found.steps.append((*span, int(step[1])))


def _place_call(event: Event, found: _Found) -> None:
    if event.args is None or event.args.collective is None:
        return
    found.calls[_key(event.args.external_id)] = event
    if span := _span(event):
        found.by_thread[_key(event.pid), _key(event.tid)].append((*span, event))


def _key(value: Any) -> Any:
    """A number or text as it stands; None for what names nothing."""
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _span(event: Event) -> tuple[int, int] | None:
    start_ns, for_ns = nanoseconds(event.ts), nanoseconds(event.dur)
    return None if start_ns is None or for_ns is None else (start_ns, start_ns + for_ns)


def _check_one_process(found: _Found, path: str) -> None:
    devices = {
        _key(event.pid)
        for source, event in found.device
        if source is SliceSource.KERNEL and _LIBRARY.search(event.name)
    }
    n_processes = max(len(found.processes - {None}), len(devices - {None}))
    if n_processes > 1:
        raise UnusableTraceError(
            f"holds {n_processes} processes in one file", path=path, next_step=ONE_RANK_STEP,
            reason="unread.several_processes",
        )  # fmt: skip


def _slices(found: _Found, base_ns: int, groups: dict[str, TraceGroup]) -> tuple[TraceSlice, ...]:
    made = [_device_slice(source, one, found, base_ns, groups) for source, one in found.device]
    made += [_gloo_slice(one, found, base_ns) for one in found.gloo]
    whole = [one for one in made if one is not None]
    found.n_unusable += len(made) - len(whole)
    whole.sort(key=lambda one: (one.start_ns, one.end_ns))
    return tuple(whole)


def _device_slice(
    source: SliceSource, event: Event, found: _Found, base_ns: int, groups: dict[str, TraceGroup]
) -> TraceSlice | None:
    span = _span(event)
    if span is None:
        return None
    args = event.args or Args()
    launch = found.runtime.get(_key(args.correlation)) if _key(args.correlation) else None
    launched = _span(launch) if launch is not None else None
    stream = whole_number(args.stream, MAX_COUNT)
    return TraceSlice(
        source=source, name=event.name, start_ns=base_ns + span[0], end_ns=base_ns + span[1],
        stream=stream if stream >= 0 else whole_number(event.tid, MAX_COUNT),
        step=_step((launched or span)[0], found.steps),
        call=_call(args, launch, found, groups) if source is SliceSource.KERNEL else None,
    )  # fmt: skip


def _gloo_slice(event: Event, found: _Found, base_ns: int) -> TraceSlice | None:
    span = _span(event)
    if span is None:
        return None
    op = op_of_call(event.name)
    call = CollectiveCall(op=op, size_bytes=_tensor_bytes(event.args) if op in _ALIKE else 0)
    return TraceSlice(
        source=SliceSource.HOST_COLLECTIVE, name=event.name, start_ns=base_ns + span[0],
        end_ns=base_ns + span[1], stream=whole_number(event.tid, MAX_COUNT),
        step=_step(span[0], found.steps), call=call,
    )  # fmt: skip


def _step(at_ns: int, steps: Sequence[tuple[int, int, int]]) -> int:
    """The number of the step in which something was launched; -1 in none."""
    place = bisect_right(steps, (at_ns, MAX_COUNT, 0)) - 1
    return steps[place][2] if place >= 0 and at_ns < steps[place][1] else -1


def _call(
    args: Args, launch: Event | None, found: _Found, groups: dict[str, TraceGroup]
) -> CollectiveCall | None:
    if args.collective is not None:
        return _stated(args, groups, is_own=True)
    external = _key(args.external_id)
    # older profilers write the correlation there, which may be the number of any other op
    parent = found.calls.get(external) if external != _key(args.correlation) else None
    if external is not None and parent is not None and parent.args is not None:
        return _stated(parent.args, groups, is_own=False)
    around = _around(launch, found) if launch is not None else None
    return _stated(around, groups, is_own=False) if around is not None else None


def _around(launch: Event, found: _Found) -> Args | None:
    """The innermost call that was open on the thread of the launch."""
    calls = found.by_thread.get((_key(launch.pid), _key(launch.tid)))
    span = _span(launch)
    if not calls or span is None:
        return None
    place = bisect_right(calls, span[0], key=lambda call: call[0])
    for start_ns, end_ns, event in reversed(calls[max(0, place - MAX_OPEN_CALLS) : place]):
        if start_ns <= span[0] <= end_ns:
            return event.args
    return None


_ALIKE = frozenset({Op.ALL_REDUCE, Op.BROADCAST, Op.REDUCE, Op.SEND, Op.RECV})
_OF_OUTPUT = frozenset({Op.ALL_GATHER, Op.RECV})


def _stated(args: Args, groups: dict[str, TraceGroup], *, is_own: bool) -> CollectiveCall:
    op = op_of_call(args.collective) if isinstance(args.collective, str) else Op.UNKNOWN
    count = whole_number(args.n_out if op in _OF_OUTPUT else args.n_in, MAX_COUNT)
    each = element_bytes(args.dtype) if isinstance(args.dtype, str) else 0
    name = _text(args.group)
    known = groups.get(name, TraceGroup(name=name))
    return CollectiveCall(
        op=op, size_bytes=max(0, count) * each, group=name,
        desc=_text(args.desc) or known.desc, members=known.members or members_of(args.members),
        is_own=is_own,
    )  # fmt: skip


def _text(value: Any) -> str:
    is_name = isinstance(value, str | int) and not isinstance(value, bool)
    return str(value)[:256] if is_name else ""


def _tensor_bytes(args: Args | None) -> int:
    """Bytes of the tensors whose shapes and element type an event lists; 0 unknown."""
    if args is None:
        return 0
    try:
        dims = msgspec.json.decode(args.dims, type=list[list[int]])
        types = msgspec.json.decode(args.types, type=list[str])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0
    if len(dims) != 1 or len(types) != 1 or len(dims[0]) > 64:
        return 0
    n_bytes = element_bytes(types[0])
    for extent in dims[0]:
        n_bytes = min(max(0, extent) * n_bytes, MAX_COUNT)
    return n_bytes


def _launches(found: _Found) -> tuple[int, int]:
    """Launches of kernels up to the last one of which a kernel is known, and how many have one.

    What was launched after it may have begun when the window had closed. A launch into a graph
    makes no kernel of its own: with graphs in the trace nothing is counted.
    """
    if found.is_graph:
        return 0, 0
    seen = {_key(event.args.correlation) for _, event in found.device if event.args is not None}
    rows = sorted(
        (span[0], correlation in seen)
        for correlation, event in found.runtime.items()
        if correlation is not None and _LAUNCH.search(event.name) and (span := _span(event))
    )
    last = max((place for place, row in enumerate(rows) if row[1]), default=len(rows) - 1)
    return last + 1, sum(is_seen for _, is_seen in rows[: last + 1])
