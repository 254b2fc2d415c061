"""Profiler traces: what is read of them, and what is refused."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pytest

from comminsight.errors import InputError
from comminsight.format.kineto import is_kineto, read_kineto
from comminsight.format.kineto_events import members_of, nanoseconds
from comminsight.model.device_trace import DeviceTrace, SliceSource
from comminsight.model.ops import Op

KERNEL = {
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0,
    "tid": 7, "ts": 10.5, "dur": 2.25, "args": {"correlation": 5, "stream": 7},
}  # fmt: skip
STATED = {
    "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000,
    "dtype": "BFloat16", "Group size": 2, "Process Group Name": "3",
    "Process Group Description": "TP", "Process Group Ranks": "[4, 5]",
}  # fmt: skip


def event(category: str, name: str, ts: Any, dur: Any, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 9, "tid": 1, "ts": ts, "dur": dur,
        "args": args,
    }  # fmt: skip


def launch(ts: float, correlation: int, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return event("cuda_runtime", name, ts, 1, correlation=correlation)


def kernel(ts: Any, correlation: int, dur: Any = 1, **args: Any) -> dict[str, Any]:
    return {**event("kernel", "gemm", ts, dur, correlation=correlation, **args), "pid": 0}


def read(*events: dict[str, Any], path: str = "t.json", **header: Any) -> DeviceTrace:
    data = json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events)}).encode()
    return read_kineto(io.BytesIO(data), path=path)


@pytest.mark.parametrize(
    ("base", "ts", "start_ns"),
    [
        (1_790_857_026_000_000_000, 5106147222695.194, 1_795_963_173_222_695_194),
        (None, 1682725898082228, 1_682_725_898_082_228_000),
        (0, "10.5", 10_500),
        ("12", 10, 10_012),
        (-4, 10, 10_000),
        (10**40, 10, 10_000),
    ],
)
def test_stamps_are_microseconds_on_the_base_of_the_trace(
    base: Any, ts: Any, start_ns: int
) -> None:
    one = read({**KERNEL, "ts": ts}, baseTimeNanoseconds=base, displayTimeUnit="ns").slices[0]
    assert (one.start_ns, one.end_ns) == (start_ns, start_ns + 2250)


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (1.0005, 1000), ("2", 2000), (-3, -3000), (True, None), (None, None), ("soon", None),
        (float("inf"), None), (float("nan"), None), (10**30, None), ([1], None),
    ],
)  # fmt: skip
def test_what_is_a_time(value: Any, ns: int | None) -> None:
    assert nanoseconds(value) == ns


@pytest.mark.parametrize(
    ("header", "path", "rank"),
    [
        ({"distributedInfo": {"rank": 3, "world_size": 8}}, "x_rank5.json", 3),
        ({"distributedInfo": {"rank": "3"}}, "x.json", 3),
        ({"distributedInfo": {"rank": -1}}, "/a/rank-34.pt.trace.json.gz", 34),
        ({}, "logs/trace[rank_12].json", 12),
        ({}, "/rank7/trace.json", -1),
        ({"traceName": "/tmp/trace_8_rank_1.json"}, "trace.json", 1),
        ({"distributedInfo": {"rank": 1 << 70}, "traceName": 4}, "host_77.pt.trace.json", -1),
    ],
)
def test_whose_trace_it_is(header: dict[str, Any], path: str, rank: int) -> None:
    assert read(KERNEL, path=path, **header).global_rank == rank


@pytest.mark.parametrize(
    ("events", "is_own"),
    [
        ([{**KERNEL, "args": {**KERNEL["args"], **STATED}}], True),  # type: ignore[dict-item]
        ([{**KERNEL, "args": {**KERNEL["args"], "External id": 77}},  # type: ignore[dict-item]
          event("cpu_op", "record_param_comms", 1, 2, **STATED, **{"External id": 77})], False),
        ([KERNEL, launch(1.5, 5), event("cpu_op", "record_param_comms", 1, 2, **STATED)], False),
    ],
    ids=["on the kernel", "by number", "by the time of its launch"],
)  # fmt: skip
def test_the_call_behind_a_kernel(events: list[dict[str, Any]], is_own: bool) -> None:
    call = read(*events).slices[0].call
    assert call is not None
    assert (call.op, call.size_bytes, call.group, call.desc, call.members, call.is_own) == (
        Op.ALL_REDUCE, 2000, "3", "TP", "4-5", is_own
    )  # fmt: skip


def test_a_number_that_is_the_correlation_names_no_call() -> None:
    own = {**KERNEL, "args": {"correlation": 5, "External id": 5}}
    call = event("cpu_op", "record_param_comms", 100, 2, **STATED, **{"External id": 5})
    assert read(own, call).slices[0].call is None


@pytest.mark.parametrize(
    ("call", "size_bytes"),
    [
        ({"Collective name": "_allgather_base", "Out msg nelems": 4000}, 8000),
        ({"Collective name": "_reduce_scatter_base", "Out msg nelems": 500}, 2000),
        ({"Collective name": "recv", "In msg nelems": 0, "Out msg nelems": 7}, 14),
        ({"In msg nelems": -5}, 0),
        ({"In msg nelems": "many"}, 0),
        ({"dtype": "Quaternion"}, 0),
        ({"dtype": None}, 0),
    ],
)
def test_sizes_are_those_of_the_whole_buffer(call: dict[str, Any], size_bytes: int) -> None:
    one = read({**KERNEL, "args": {**STATED, **call}}).slices[0]
    assert one.call is not None
    assert one.call.size_bytes == size_bytes


@pytest.mark.parametrize(
    ("ranks", "members"),
    [
        ([0, 1, 2, 3], "0-3"), ("[8, 9]", "8-9"), ("[0, 1, 2, ..., 127]", ""), ("", ""),
        ([0, "x"], ""), (None, ""), ({"0": 1}, ""), ([-1], ""),
    ],
)  # fmt: skip
def test_members_of_a_group(ranks: Any, members: str) -> None:
    assert members_of(ranks) == members


def test_members_cut_on_the_kernel_come_from_the_header() -> None:
    cut = {**STATED, "Process Group Ranks": "[0, 1, ...]"}
    group = {"pg_name": "3", "pg_desc": "TP", "pg_size": 64, "ranks": list(range(64))}
    header = {"rank": 0, "world_size": 64, "pg_config": [group]}
    call = read({**KERNEL, "args": cut}, distributedInfo=header).slices[0].call
    assert call is not None
    assert call.members == "0-63"


def test_a_kernel_belongs_to_the_step_that_launched_it() -> None:
    steps = [event("user_annotation", f"ProfilerStep#{n}", n * 10, 10) for n in (4, 5)]
    late = [launch(49.5, 1), kernel(51, 1), launch(51, 2), kernel(52, 2), kernel(99, 3)]
    other = event("gpu_user_annotation", "ProfilerStep#9", 0, 500)
    assert [one.step for one in read(*steps, *late, other).slices] == [4, 5, -1]


def test_sources_by_category() -> None:
    events = [
        kernel(1, 1), event("gpu_memcpy", "Memcpy DtoH", 2, 1), event("gpu_memset", "Memset", 3, 1),
        event("user_annotation", "gloo:all_reduce", 4, 1, **{"Input Dims": [[8, 2]],
              "Input type": ["float"]}),
        event("gpu_user_annotation", "nccl:all_reduce", 5, 1),
        event("user_annotation", "nccl:all_reduce", 5, 1), event("cuda_sync", "Stream Sync", 5, 1),
        event("cpu_op", "aten::mm", 5, 1), {"ph": "i", "cat": "kernel", "name": "mark", "ts": 5},
    ]  # fmt: skip
    found = read(*events).slices
    assert [one.source for one in found] == [
        SliceSource.KERNEL, SliceSource.COPY, SliceSource.COPY, SliceSource.HOST_COLLECTIVE
    ]  # fmt: skip
    assert found[3].call is not None
    assert found[3].call.size_bytes == 64


@pytest.mark.parametrize(
    ("events", "counts"),
    [
        ([launch(1, 1), launch(2, 2), kernel(3, 2)], (2, 1)),
        ([launch(1, 1), kernel(2, 1), launch(3, 2)], (1, 1)),  # behind the last: not in the window
        ([kernel(1, 1), launch(2, 2), kernel(3, 2)], (1, 1)),  # begun before the window
        ([launch(1, 1), launch(2, 2)], (2, 0)),
        ([launch(1, 1, "hipExtModuleLaunchKernel"), kernel(2, 1)], (1, 1)),
        ([launch(1, 1, "cuLaunchKernelEx"), launch(2, 2, "cudaMemcpyAsync"), kernel(3, 1)], (1, 1)),
        (
            [launch(0, 9, "cudaStreamBeginCapture"), launch(1, 1), launch(2, 2), kernel(3, 2)],
            (0, 0),
        ),
    ],
)
def test_launches_and_their_kernels(events: list[Any], counts: tuple[int, int]) -> None:
    trace = read(*events)
    assert (trace.n_launches, trace.n_launched_kernels) == counts


def test_events_without_times_are_counted() -> None:
    trace = read(
        kernel(1, 1), kernel(None, 2), kernel("x", 3), kernel(5, 4, dur=None),
        kernel(6, 5, dur=-1), kernel(10**400, 6),
    )  # fmt: skip
    assert (len(trace.slices), trace.n_unusable) == (1, 5)


WHOLE = json.dumps({"schemaVersion": 1, "traceEvents": [KERNEL]}).encode()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (WHOLE + WHOLE, "trailing characters"),
        (WHOLE[:-9], "truncated"),
        (gzip.compress(WHOLE)[:-30], "truncated"),
        (b'{"other": ' + b"[" * 100_000, "recursion"),
        (b'{"traceEvents": ' + b"[" * 100_000, "got `array`"),
        (b'{"schemaVersion": 1, "traceEvents": [{"ts": NaN}]}', "malformed"),
        (b'{"schemaVersion": 1, "traceEvents": [{"ts": 1e999}]}', "range"),
        (b'{"schemaVersion": 1, "traceEvents": {"a": 1}}', r"Expected `array`.*traceEvents"),
        (b'{"schemaVersion": 1, "traceEvents": [{"name": 4}]}', r"traceEvents.*name"),
        (b'{"schemaVersion": 1}', "traceEvents"),
        (b"[]", "Expected `object`"),
        (b"", "truncated"),
        (b"\xff\xfe{}", "malformed"),
        (json.dumps({"traceEvents": [{"ph": "M", "name": "x"}]}).encode(), "none of its 1 events"),
        (b'{"traceEvents": []}', "device"),
        (gzip.compress(b"[" + b" " * (200 << 20)), "times its size"),
    ],
)
def test_what_is_no_trace_is_refused_by_name(data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=f"(?is)t.json: .*({said})") as error:
        read_kineto(io.BytesIO(data), path="t.json")
    assert error.value.next_step


@pytest.mark.parametrize(
    "events",
    [
        [event("cpu_op", "aten::mm", 1, 1), {**event("cpu_op", "aten::mm", 1, 1), "pid": 10}],
        [KERNEL, {**KERNEL, "pid": 1}],
    ],
    ids=["two host processes", "collectives on two devices"],
)
def test_merged_ranks_are_refused(events: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="2 processes in one file"):
        read(*events)


@pytest.mark.parametrize(
    ("head", "is_trace"),
    [
        (b'{\n  "schemaVersion": 1,\n  "deviceProperties": [', True),
        (b'\xef\xbb\xbf{"traceEvents": [{"ph": "X"', True),
        (b'{"displayTimeUnit": "ms", "traceEvents" : [', True),
        (b'{"version": "2.9", "pg_config": {}, "entries": []}', False),
        (b'[{"name": "trace", "ph": "X"}]', False),
        (b'{"schemaVersion": 1, "nccl_version": "2.27"}', False),
        (b'step 1 {"schemaVersion": 1, "distributedInfo": {}}', False),
        (b"", False),
    ],
)
def test_a_trace_is_known_by_its_first_keys(head: bytes, is_trace: bool) -> None:
    assert is_kineto(head) is is_trace
