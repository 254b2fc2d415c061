"""What is kept of the events of a profiler trace: a few columns of those that matter.

Most events are host ops, of which only the process counts. Nothing kept holds on to the text.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from comminsight.format.document import UNREADABLE
from comminsight.format.kineto_events import Args, Event, members_of, nanoseconds, whole_number
from comminsight.format.torch_names import dtype_of_name, element_bytes, op_of_call
from comminsight.model.device_trace import CollectiveCall, SliceSource
from comminsight.model.ops import DTYPE_SIZE_BYTES, DType, Op

MAX_COUNT = 1 << 62
PARAMETERS = "record_param_comms"
HOST_COLLECTIVE = "gloo:"
_DEVICE = {
    "kernel": SliceSource.KERNEL, "gpu_memcpy": SliceSource.COPY, "gpu_memset": SliceSource.COPY,
    "memcpy": SliceSource.COPY, "memset": SliceSource.COPY,
}  # fmt: skip
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "xpu_runtime"})
_HOST = frozenset({"cpu_op", "operator"})
_STEP = re.compile(r"ProfilerStep#(\d{1,9})", re.ASCII)
_LAUNCH = re.compile(r"(?:cuda|hip|cu)(?:Ext)?(?:Module)?LaunchKernel|LaunchCooperative", re.ASCII)
_GRAPH = re.compile(r"BeginCapture|Graph(?:Launch|Instantiate)", re.ASCII)
_ALIKE = frozenset({Op.ALL_REDUCE, Op.BROADCAST, Op.REDUCE, Op.SEND, Op.RECV})
_OF_OUTPUT = frozenset({Op.ALL_GATHER, Op.RECV})
_NO_ARGS = Args()


class DeviceEvent(msgspec.Struct, frozen=True, gc=False):
    """One event of a device; ``correlation`` and ``external_id`` None where it states none."""

    source: SliceSource
    name: str
    process: Any
    stream: int
    correlation: Any = None
    external_id: Any = None
    call: CollectiveCall | None = None


@dataclass(slots=True)
class Times:
    """Stamps and durations as they stand in the trace, microseconds; a value may be of any kind."""

    stamps: list[Any] = field(default_factory=list)
    durations: list[Any] = field(default_factory=list)

    def add(self, event: Event) -> int:
        """The place of the event's times."""
        self.stamps.append(event.ts)
        self.durations.append(event.dur)
        return len(self.stamps) - 1


@dataclass(slots=True)
class Launches:
    """Calls of the runtime. ``places`` gives those of a correlation; the last one counts."""

    times: Times = field(default_factory=Times)
    threads: list[Any] = field(default_factory=list)
    is_launch: array[int] = field(default_factory=lambda: array("b"))
    places: dict[Any, int] = field(default_factory=dict)


@dataclass(slots=True)
class FoundEvents:
    """The events that matter, by what they are; ``n_events`` counts all that were seen."""

    n_events: int = 0
    device: list[DeviceEvent] = field(default_factory=list)
    device_times: Times = field(default_factory=Times)
    launches: Launches = field(default_factory=Launches)
    by_number: dict[Any, CollectiveCall] = field(default_factory=dict)  # by External id
    by_thread: dict[Any, list[tuple[int, int, CollectiveCall]]] = field(default_factory=dict)
    steps: list[tuple[int, int, int]] = field(default_factory=list)  # start, end, number
    processes: set[Any] = field(default_factory=set)
    is_graph: bool = False
    _takers: dict[str, Callable[[Event], None] | None] = field(default_factory=dict)  # by category
    _names: dict[str, str] = field(default_factory=dict)
    _calls: dict[Any, CollectiveCall] = field(default_factory=dict)
    _threads: dict[Any, Any] = field(default_factory=dict)
    _runtime: dict[str, tuple[bool, bool]] = field(default_factory=dict)  # is a launch, of graphs
    _last_process: Any = None

    def add(self, events: Sequence[Event]) -> None:
        """Keeps what matters of ``events``."""
        self.n_events += len(events)
        takers, of_new_category = self._takers, self._add_new_category
        for event in events:
            if event.ph != "X":
                continue
            take = takers.get(event.cat, of_new_category)
            if take is not None:
                take(event)
                continue
            if event.pid != self._last_process:
                self._see_process(event)
            if event.name == PARAMETERS:
                self._add_call(event)

    def _add_new_category(self, event: Event) -> None:
        """Chooses once for all events of a category who takes them; None are ops of the host."""
        word = event.cat.lower()
        take: Callable[[Event], None] | None = self._add_other
        if source := _DEVICE.get(word):
            take = self._add_kernel if source is SliceSource.KERNEL else self._add_copy
        elif word in _RUNTIME:
            take = self._add_launch
        elif word in _HOST:
            take = None
        elif word == "user_annotation":
            take = self._add_note
        self._takers[event.cat] = take
        self.n_events -= 1
        self.add([event])

    def _see_process(self, event: Event) -> None:
        self._last_process = event.pid
        self.processes.add(key_of(event.pid))

    def _add_other(self, event: Event) -> None:
        if event.name == PARAMETERS:
            self._add_call(event)

    def _add_launch(self, event: Event) -> None:
        name, args, found = event.name, event.args, self.launches
        if event.pid != self._last_process:
            self._see_process(event)
        kind = self._runtime.get(name)
        if kind is None:
            kind = self._runtime[name] = bool(_LAUNCH.search(name)), bool(_GRAPH.search(name))
        if kind[1]:
            self.is_graph = True
        if args is None:
            return
        found.places[key_of(args.correlation)] = len(found.threads)
        found.times.stamps.append(event.ts)
        found.times.durations.append(event.dur)
        found.threads.append(self._thread(event))
        found.is_launch.append(kind[0])

    def _thread(self, event: Event) -> Any:
        """The thread of a host event: one object for all of it."""
        thread = key_of(event.pid), key_of(event.tid)
        return self._threads.setdefault(thread, thread)

    def _add_kernel(self, event: Event) -> None:
        args = event.args or _NO_ARGS
        call = self._stated(args) if args.collective is not None else None
        self._add_device(event, SliceSource.KERNEL, args, call)

    def _add_copy(self, event: Event) -> None:
        self._add_device(event, SliceSource.COPY, event.args or _NO_ARGS, None)

    def _add_device(
        self, event: Event, source: SliceSource, args: Args, call: CollectiveCall | None
    ) -> None:
        stream = whole_number(args.stream, MAX_COUNT)
        if stream < 0:
            stream = whole_number(event.tid, MAX_COUNT)
        name = self._names.setdefault(event.name, event.name)
        numbers = key_of(args.correlation), key_of(args.external_id)
        self.device.append(DeviceEvent(source, name, key_of(event.pid), stream, *numbers, call))
        self.device_times.add(event)

    def _add_call(self, event: Event) -> None:
        args = event.args
        if args is None or args.collective is None:
            return
        call = self._stated(args)
        self.by_number[key_of(args.external_id)] = call
        if span := span_of(event):
            self.by_thread.setdefault(self._thread(event), []).append((*span, call))

    def _add_note(self, event: Event) -> None:
        if event.name == PARAMETERS:
            self._add_call(event)
        elif event.name.startswith(HOST_COLLECTIVE):
            op = op_of_call(event.name)
            size_bytes = _tensor_bytes(event.args) if op in _ALIKE else 0
            call = CollectiveCall(op=op, size_bytes=size_bytes)
            name = self._names.setdefault(event.name, event.name)
            stream = whole_number(event.tid, MAX_COUNT)
            self.device.append(
                DeviceEvent(SliceSource.HOST_COLLECTIVE, name, None, stream, call=call)
            )
            self.device_times.add(event)
        elif (step := _STEP.fullmatch(event.name)) and (span := span_of(event)):
            self.steps.append((*span, int(step[1])))

    def _stated(self, args: Args) -> CollectiveCall:
        """The call that ``args`` state: one object for all that state the same."""
        key = (
            args.collective, args.n_in, args.n_out, args.dtype, args.group, args.desc, args.members
        )  # fmt: skip
        try:
            known = self._calls.get(key)
        except TypeError:  # a list, which names nothing
            return _call(args)
        if known is None:
            known = self._calls[key] = _call(args)
        return known


def key_of(value: Any) -> Any:
    """A number or text as it stands; None for what names nothing."""
    kind = type(value)
    return value if kind is int or kind is str else None


def span_of(event: Event) -> tuple[int, int] | None:
    """Start and end in ns; None for what are no times."""
    start_ns, for_ns = nanoseconds(event.ts), nanoseconds(event.dur)
    if start_ns is None or for_ns is None or for_ns < 0:
        return None
    return start_ns, start_ns + for_ns


def _call(args: Args) -> CollectiveCall:
    op = op_of_call(args.collective) if isinstance(args.collective, str) else Op.UNKNOWN
    count = whole_number(args.n_out if op in _OF_OUTPUT else args.n_in, MAX_COUNT)
    dtype = dtype_of_name(args.dtype) if isinstance(args.dtype, str) else DType.UNKNOWN
    size_bytes = max(0, count) * DTYPE_SIZE_BYTES.get(dtype, 0)
    return CollectiveCall(
        op=op, size_bytes=size_bytes, dtype=dtype, group=_text(args.group), desc=_text(args.desc),
        members=members_of(args.members),
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
    except UNREADABLE:
        return 0
    if len(dims) != 1 or len(types) != 1 or len(dims[0]) > 64:
        return 0
    n_bytes = element_bytes(types[0])
    for extent in dims[0]:
        n_bytes = min(max(0, extent) * n_bytes, MAX_COUNT)
    return n_bytes
