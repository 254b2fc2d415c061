"""What the intervals of a trace are: compute, communication of which op and group, or neither."""

from __future__ import annotations

import pytest

from comminsight.model.activity import ActivityKind, LaunchCount
from comminsight.model.device_trace import CollectiveCall, DeviceTrace, SliceSource, TraceGroup
from comminsight.model.device_trace import TraceSlice as Slice
from comminsight.model.ops import Op
from comminsight.semantics.trace_activities import (
    activities_of,
    kind_of,
    launches_of,
    op_of_kernel,
)

COMM, COMPUTE, COPY, WAIT, OTHER = (
    ActivityKind.COMMUNICATION, ActivityKind.COMPUTE, ActivityKind.COPY, ActivityKind.WAIT,
    ActivityKind.OTHER,
)  # fmt: skip
OWN = CollectiveCall(op=Op.ALL_GATHER, group="1", members="0-3")
NEAR = CollectiveCall(op=Op.ALL_GATHER, group="1", members="0-3", is_own=False)
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def interval(name: str, call: CollectiveCall | None = None, **more: int) -> Slice:
    return Slice(source=SliceSource.KERNEL, name=name, start_ns=10, end_ns=20, call=call, **more)


@pytest.mark.parametrize(
    ("name", "call", "kind"),
    [
        ("ampere_bf16_s16816gemm", None, COMPUTE),
        ("void at::native::reduce_kernel<512>()", None, COMPUTE),
        ("ampere_bf16_s16816gemm", NEAR, COMPUTE),  # launched within a call: a copy of its data
        ("mystery", OWN, COMM),  # the trace itself states a collective on it
        (NCCL, None, COMM),
        ("void vllm::cross_device_reduce_1stage<float>()", None, COMM),
        ("my_fast_all_reduce_v2", None, OTHER),
        ("void flashcomm::reduce_scatter<8>()", None, OTHER),
        ("Stream Sync", None, WAIT),
        ("Memcpy DtoD (Device -> Device)", None, COPY),
        ("Memcpy PtoP (Device -> Device)", OWN, COPY),
        ("", None, OTHER),
    ],
)
def test_the_class_of_a_kernel(name: str, call: CollectiveCall | None, kind: ActivityKind) -> None:
    assert kind_of(interval(name, call))[0] is kind


@pytest.mark.parametrize(
    ("name", "op"),
    [
        (NCCL, Op.ALL_REDUCE), ("ncclKernel_AllReduce_RING_LL_Sum_float()", Op.ALL_REDUCE),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", Op.REDUCE_SCATTER),
        ("nccl:all_gather", Op.ALL_GATHER), ("ncclDevKernel_Broadcast_RING_LL", Op.BROADCAST),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", Op.UNKNOWN),
        ("ncclDevKernel_Generic_4", Op.UNKNOWN), ("void at::native::allreduce()", Op.UNKNOWN),
        ("ncclDevKernel_Generic(AllReduceArgs)", Op.UNKNOWN),
    ],
)  # fmt: skip
def test_the_op_that_a_kernel_is_named_after(name: str, op: Op) -> None:
    assert op_of_kernel(name) is op


WORLD = TraceGroup(name="0", size=4, members="0-3")
PART = TraceGroup(name="1", size=2, members="0-1")


@pytest.mark.parametrize(
    ("call", "world", "groups", "label"),
    [
        (CollectiveCall(group="1", desc="TP", members="0-1"), 4, (WORLD, PART), "TP:1 (0-1)"),
        (CollectiveCall(group="1", desc="undefined", members="0-1"), 4, (PART,), "1 (0-1)"),
        (CollectiveCall(group="7"), 4, (WORLD, PART), "7 of rank 2"),  # which group is not sure
        (None, 4, (WORLD,), ""),  # no other group is possible
        (None, 4, (WORLD, PART), "stream 5 of rank 2"),
        (None, 4, (PART,), "stream 5 of rank 2"),
        (None, 2, (), ""),
        (None, 8, (), "stream 5 of rank 2"),
        (None, 0, (), "stream 5 of rank 2"),
    ],
)
def test_groups_join_ranks_only_where_they_are_sure(
    call: CollectiveCall | None, world: int, groups: tuple[TraceGroup, ...], label: str
) -> None:
    trace = DeviceTrace(
        file="t", slices=(interval(NCCL, call, stream=5),), global_rank=2, world_size=world,
        groups=groups,
    )  # fmt: skip
    assert [one.comm_label for one in activities_of(trace)] == [label]


def test_two_streams_of_collectives_may_be_two_groups() -> None:
    slices = (interval(NCCL, stream=5), interval(NCCL, stream=6))
    trace = DeviceTrace(file="t", slices=slices, global_rank=0, world_size=2)
    assert {one.comm_label for one in activities_of(trace)} == {
        "stream 5 of rank 0", "stream 6 of rank 0"
    }  # fmt: skip


def test_what_the_window_cuts_is_left_out_where_steps_are_marked() -> None:
    slices = (interval("gemm"), interval("gemm", step=3))
    trace = DeviceTrace(file="t", slices=slices, global_rank=1)
    assert [(one.step, one.global_rank) for one in activities_of(trace)] == [(3, 1)]


def test_compute_has_neither_op_nor_group() -> None:
    trace = DeviceTrace(file="t", slices=(interval("gemm", NEAR),), global_rank=1)
    (one,) = activities_of(trace)
    assert (one.kind, one.op, one.comm_label) == (COMPUTE, Op.UNKNOWN, "")


@pytest.mark.parametrize(
    ("rank", "n_launches", "counts"),
    [(3, 9, [LaunchCount(global_rank=3, n_launches=9, n_kernels=7)]), (-1, 9, []), (3, 0, [])],
)
def test_launches_of_a_known_rank(rank: int, n_launches: int, counts: list[LaunchCount]) -> None:
    trace = DeviceTrace(
        file="t", slices=(), global_rank=rank, n_launches=n_launches, n_launched_kernels=7
    )
    assert list(launches_of(trace)) == counts
