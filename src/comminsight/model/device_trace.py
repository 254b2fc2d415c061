"""What a profiler recorded of one rank, before anybody says what its kernels are."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.ops import DType, Op


class SliceSource(StrEnum):
    """What wrote the interval, by its category in the trace."""

    KERNEL = "kernel"
    COPY = "copy"  # memcpy and memset
    HOST_COLLECTIVE = "host_collective"  # run by a thread of gloo


class CollectiveCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the trace states of the call behind an interval; ``group`` "" is unknown, ``op`` 0 too.

    ``size_bytes`` is 0 where elements or their type are unknown. ``is_own`` is False where the
    call was found by its number or by the time of the launch and does not stand on the kernel.
    """

    op: Op = Op.UNKNOWN
    size_bytes: int = 0
    dtype: DType = DType.UNKNOWN
    group: str = ""
    desc: str = ""
    members: str = ""  # global ranks as ``model.ranges`` writes them; "" unknown
    is_own: bool = True


class TraceSlice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One interval on a stream (a thread, for a host collective), ns on the clock of the trace."""

    source: SliceSource
    name: str
    start_ns: int
    end_ns: int
    stream: int = 0
    step: int = -1
    call: CollectiveCall | None = None


class TraceGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A process group of the trace's header."""

    name: str
    desc: str = ""
    size: int = 0
    members: str = ""


class DeviceTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals of one process, by their start. ``global_rank`` is -1 and ``world_size`` 0
    where nothing tells them; ``is_world_inferred`` where the world is that of the largest
    communicator seen, beyond which the job may have more ranks.

    ``n_launches`` counts the launches in the window, ``n_launched_kernels`` those of them whose
    kernel stands in the trace; both 0 where launches were not recorded, or went into a graph.
    ``n_unusable`` are device events whose stamps are no times.
    """

    file: str
    slices: tuple[TraceSlice, ...]
    global_rank: int = -1
    world_size: int = 0
    is_world_inferred: bool = False
    groups: tuple[TraceGroup, ...] = ()
    n_launches: int = 0
    n_launched_kernels: int = 0
    n_unusable: int = 0
