"""Intervals of devices out of the events of one process, joined to their launches and calls.

A kernel is tied to its launch by ``correlation``, to the call behind it by what stands on itself,
then by ``External id``, then by the call that was open on the thread when it was launched. These
numbers are each process's own; none of them is ever compared between ranks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from comminsight.errors import InputError
from comminsight.format.kineto_events import nanoseconds
from comminsight.format.kineto_found import DeviceEvent, FoundEvents, Times
from comminsight.model.device_trace import (
    CollectiveCall,
    DeviceTrace,
    SliceSource,
    TraceGroup,
    TraceSlice,
)

ONE_RANK_STEP = "give the trace of each rank in a file of its own, as torch.profiler wrote it"
MAX_OPEN_CALLS = 8  # calls within calls on one thread
NO_TIME = np.iinfo(np.int64).min
_LARGEST_US = 1 << 52  # whole numbers up to here are exact as floats
_LIBRARY = re.compile(r"[nr]ccl", re.IGNORECASE)


class UnusableTraceError(InputError):
    """A whole trace that is of no use; ``reason`` is the code that says why."""

    def __init__(self, message: str, *, path: str, next_step: str, reason: str) -> None:
        super().__init__(message, path=path, next_step=next_step)
        self.reason = reason


def device_trace(
    found: FoundEvents, base_ns: int, groups: tuple[TraceGroup, ...], path: str
) -> DeviceTrace:
    """The trace without its rank.

    Raises UnusableTraceError for events of several processes, and where there is neither device
    nor collective.
    """
    _check_one_process(found, path)
    launched = spans_ns(found.launches.times)[0]
    slices = _Slices(found, launched, groups).made(base_ns)
    n_launches, n_joined = _launches(found, launched)
    if not (slices or n_launches):
        raise UnusableTraceError(
            f"none of its {found.n_events:,} events is of a device or a collective", path=path,
            next_step="profile with ProfilerActivity.CUDA, or give the trace of a rank that has it",
            reason="unread.no_devices",
        )  # fmt: skip
    return DeviceTrace(
        file=path, slices=slices, groups=groups, n_launches=n_launches,
        n_launched_kernels=n_joined, n_unusable=len(found.device) - len(slices),
    )  # fmt: skip


def _check_one_process(found: FoundEvents, path: str) -> None:
    kernels = {(one.name, one.process) for one in found.device if one.source is SliceSource.KERNEL}
    libraries = {process for name, process in kernels if _LIBRARY.search(name)}
    n_processes = max(len(found.processes - {None}), len(libraries - {None}))
    if n_processes > 1:
        raise UnusableTraceError(
            f"holds {n_processes} processes in one file", path=path, next_step=ONE_RANK_STEP,
            reason="unread.several_processes",
        )  # fmt: skip


def spans_ns(times: Times) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends ``(n,)`` in ns; both ``NO_TIME`` where either is no time, or an end comes
    before its start."""
    starts, lengths = _column_ns(times.stamps), _column_ns(times.durations)
    is_span = (starts != NO_TIME) & (lengths >= 0)
    return np.where(is_span, starts, NO_TIME), np.where(is_span, starts + lengths, NO_TIME)


def _column_ns(values: list[Any]) -> np.ndarray:
    """``nanoseconds`` of each value, ``NO_TIME`` for None."""
    if {*map(type, values)} <= {int, float}:
        try:
            us = np.array(values, np.float64)
        except OverflowError:  # a number of hundreds of digits
            us = np.array([np.inf])
        if not len(us) or np.abs(us).max() < _LARGEST_US:
            whole = np.trunc(us)
            return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
    slow = [NO_TIME if (ns := nanoseconds(value)) is None else ns for value in values]
    return np.array(slow, np.int64)


class _Slices:
    """Joins the events of devices to what launched them."""

    def __init__(
        self, found: FoundEvents, launched: np.ndarray, groups: tuple[TraceGroup, ...]
    ) -> None:
        self._found = found
        self._groups: Mapping[str, TraceGroup] = {one.name: one for one in groups}
        self._launched = launched.tolist()
        self._known: dict[tuple[int, bool], CollectiveCall] = {}
        self._calls = {thread: sorted(own, key=_span) for thread, own in found.by_thread.items()}
        self._begins = {t: [call[0] for call in own] for t, own in self._calls.items()}

    def made(self, base_ns: int) -> tuple[TraceSlice, ...]:
        """The slices with times, by start and end."""
        starts, ends = spans_ns(self._found.device_times)
        order = np.lexsort((ends, starts))
        order = order[starts[order] != NO_TIME]
        places = self._found.launches.places
        launches = [
            -1 if (key := one.correlation) in {None, 0, ""} else places.get(key, -1)
            for one in self._found.device
        ]
        steps = self._steps(starts, np.array(launches, np.int64)).tolist()
        firsts, lasts = starts.tolist(), ends.tolist()
        device = self._found.device
        return tuple(
            TraceSlice(
                source=device[n].source, name=device[n].name, start_ns=base_ns + firsts[n],
                end_ns=base_ns + lasts[n], stream=device[n].stream, step=steps[n],
                call=self._call(device[n], launches[n]),
            )
            for n in order.tolist()
        )  # fmt: skip

    def _steps(self, starts: np.ndarray, launches: np.ndarray) -> np.ndarray:
        """The number of the step in which each was launched; -1 in none."""
        steps = np.array(sorted(self._found.steps), np.int64).reshape(-1, 3)
        if not len(steps):
            return np.full(len(starts), -1)
        launched = np.array([*self._launched, NO_TIME], np.int64)[launches]  # the last one for -1
        at = np.where(launched != NO_TIME, launched, starts)
        place = np.searchsorted(steps[:, 0], at, side="right") - 1
        is_in = (place >= 0) & (at < steps[place, 1])
        return np.where(is_in, steps[place, 2], -1)

    def _call(self, one: DeviceEvent, launch: int) -> CollectiveCall | None:
        if one.source is SliceSource.HOST_COLLECTIVE:
            return one.call
        if one.source is not SliceSource.KERNEL:
            return None
        if one.call is not None:
            return self._whole(one.call, is_own=True)
        external = one.external_id
        # older profilers write the correlation there, which may be the number of any other op
        if external is not None and external != one.correlation:
            parent = self._found.by_number.get(external)
            if parent is not None:
                return self._whole(parent, is_own=False)
        around = self._around(launch) if launch >= 0 else None
        return None if around is None else self._whole(around, is_own=False)

    def _around(self, launch: int) -> CollectiveCall | None:
        """The innermost call that was open on the thread of the launch."""
        thread, at = self._found.launches.threads[launch], self._launched[launch]
        begins = self._begins.get(thread)
        if begins is None or at == NO_TIME:
            return None
        place = bisect_right(begins, at)
        for begin, end, call in reversed(
            self._calls[thread][max(0, place - MAX_OPEN_CALLS) : place]
        ):
            if begin <= at <= end:
                return call
        return None

    def _whole(self, call: CollectiveCall, *, is_own: bool) -> CollectiveCall:
        """The call with what the header knows of its group: one object for all alike."""
        key = id(call), is_own
        if (whole := self._known.get(key)) is None:
            group = self._groups.get(call.group, TraceGroup(name=call.group))
            whole = self._known[key] = replace(
                call, desc=call.desc or group.desc, members=group.members or call.members,
                is_own=is_own,
            )  # fmt: skip
        return whole


def _span(call: tuple[int, int, CollectiveCall]) -> tuple[int, int]:
    return call[:2]


def _launches(found: FoundEvents, launched: np.ndarray) -> tuple[int, int]:
    """Launches of kernels up to the last one of which a kernel is known, and how many have one.

    What was launched after it may have begun when the window had closed. A launch into a graph
    makes no kernel of its own: with graphs in the trace nothing is counted.
    """
    if found.is_graph:
        return 0, 0
    seen = {one.correlation for one in found.device}
    launches = found.launches
    keys = [key for key, n in launches.places.items() if launches.is_launch[n] and key is not None]
    is_seen = np.array([key in seen for key in keys], bool)
    at = launched[np.array([launches.places[key] for key in keys], np.int64)]
    is_seen = is_seen[np.lexsort((is_seen, at))][np.sort(at) != NO_TIME]
    last = int(np.flatnonzero(is_seen)[-1]) if is_seen.any() else len(is_seen) - 1
    return last + 1, int(is_seen[: last + 1].sum())
