"""Files of Ascend's profiler, as small as their readers allow."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from comminsight.errors import InputError
from comminsight.format.ascend import AscendRank, hash_of_group, nanoseconds, op_of_hccl, rank_of
from comminsight.format.ascend_csv import (
    is_kernel_details,
    is_step_trace_time,
    read_kernel_details,
    read_step_trace_time,
)
from comminsight.format.ascend_json import (
    is_communication,
    is_communication_matrix,
    read_communication,
    read_communication_matrix,
)
from comminsight.format.ascend_trace import is_trace_view, read_trace_view
from comminsight.model.ops import Op
from comminsight.pipeline.ascend_profiles import read_ascend_profiles
from comminsight.pipeline.evidence_files import FileForm, form_of
from comminsight.pipeline.traces import trace_evidence
from tests.builders.nsys import database

KERNELS = """Step Id,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us)
5,2,MatMul_1,MatMul,AI_CORE,1764246877073569.640\t,1892.920
5,3,hcom_allReduce__7_0_1,hcom_allReduce_,HCCL,1764246877073600.001\t,10.5
5,2,Add,Add,AI_VECTOR_CORE,N/A,1
"""
GROUP = hash_of_group("group_name_7")
METADATA = {
    "distributed_args": {"rank": 2, "world_size": 4},
    "parallel_group_info": {"group_name_7": {"group_name": "dp", "global_ranks": [2, 3]}},
}
RANK = rank_of({"rank_id": "2"}, METADATA)
COMMUNICATION = {
    "step5": {"p2p": {}, "collective": {
        f"hcom_allReduce__7_0_1@{GROUP}": {"Communication Time Info": {
            "Start Timestamp(us)": 1764246877073600.0, "Elapse Time(ms)": 0.0105,
        }, "Communication Bandwidth Info": {}},
        "Total Op Info": {"Communication Time Info": {
            "Start Timestamp(us)": 0, "Elapse Time(ms)": 9,
        }},
    }},
}  # fmt: skip


def link(kind: str, megabytes: float, ms: float, **more: str) -> dict[str, Any]:
    return {"Transport Type": kind, "Transit Size(MB)": megabytes, "Transit Time(ms)": ms, **more}


MATRIX = {
    "step5": {"p2p": {}, "collective": {
        f"reduce-top1@{GROUP}": {
            "0-1": link("HCCS", 1, 1, **{"Op Name": "hcom_reduceScatter__7_0_1"}),
        },
        f"reduce-total@{GROUP}": {
            "0-0": link("LOCAL", 9, 1), "0-1": link("HCCS", 200, 10), "0-9": link("RDMA", 10, 1),
            "1-0": link("HCCS", 0, 0),
        },
    }},
}  # fmt: skip
VIEW = [
    {"ph": "X", "name": "host", "pid": 1, "tid": 1, "ts": "1764246877073569.640", "dur": 1},
    {"ph": "X", "name": "MatMul", "pid": 9, "tid": 2, "ts": "1764246877073570.640", "dur": 2.5,
     "args": {"Task Type": "AI_CORE"}},
    {"ph": "X", "name": "EVENT_WAIT", "pid": 9, "tid": 2, "ts": "1764246877073570.640", "dur": 9,
     "args": {"Task Type": "EVENT_WAIT_SQE"}},
    {"ph": "X", "name": "hcom_allGather__1_0_1", "pid": 8, "tid": 0, "ts": "1764246877073575.000",
     "dur": 4, "args": {"count": 10, "data_type": "FP16"}},
    {"ph": "X", "name": "Notify_Wait", "pid": 8, "tid": 1, "ts": "1764246877073575.000", "dur": 3},
    {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "Ascend Hardware"}},
    {"ph": "M", "name": "process_name", "pid": 8, "args": {"name": "HCCL"}},
    {"ph": "M", "name": "thread_name", "pid": 8, "tid": 0,
     "args": {"name": "Group 0 Communication"}},
    {"ph": "M", "name": "thread_name", "pid": 8, "tid": 1, "args": {"name": "Plane 0"}},
]  # fmt: skip


def stream_of(value: object) -> io.BytesIO:
    text = value if isinstance(value, str) else json.dumps(value)
    return io.BytesIO(text.encode())


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1764246877073569.640\t", 1764246877073569640), ("12", 12000), ("0.5", 500), (1.25, 1250),
        ("0.0009", 0), ("N/A", None), ("", None), ("-1", None), (None, None), ("9" * 30, None),
    ],
)  # fmt: skip
def test_stamps_are_exact_to_the_nanosecond(text: object, ns: int | None) -> None:
    assert nanoseconds(text) == ns


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("hcom_allReduce__586_0_1", Op.ALL_REDUCE), ("hcom_reduceScatter__1_2", Op.REDUCE_SCATTER),
        ("hcom_allGather__1", Op.ALL_GATHER), ("hcom_broadcast__5", Op.BROADCAST),
        ("hcom_send__1", Op.SEND), ("hcom_receive__1", Op.RECV),
        ("hcom_alltoallv__1", Op.ALL_TO_ALL),
        ("hcom_batchSendRecv__128_3_1", Op.UNKNOWN),
    ],
)  # fmt: skip
def test_ops_by_their_names(name: str, op: Op) -> None:
    assert op_of_hccl(name) is op


def test_whose_profile_it_is() -> None:
    assert (RANK.global_rank, RANK.world_size) == (2, 4)
    (group,) = RANK.groups.values()
    assert (group.name, group.desc, group.members, group.size) == ("group_name_7", "dp", "2-3", 2)
    assert rank_of({}, {}) == AscendRank()
    assert (
        rank_of({"rank_id": "x"}, {"distributed_args": 3, "parallel_group_info": [1]})
        == AscendRank()
    )


def test_the_table_of_kernels() -> None:
    slices, n_unusable = read_kernel_details(stream_of(KERNELS), RANK)
    assert n_unusable == 1
    kernel, call = slices
    assert (kernel.start_ns, kernel.end_ns) == (1764246877073569640, 1764246877075462560)
    assert (kernel.step, kernel.stream, kernel.call) == (5, 2, None)
    assert call.call is not None
    assert call.call.op is Op.ALL_REDUCE


@pytest.mark.parametrize("absent", ["Step Id", "Stream ID", "Accelerator Core"])
def test_a_column_that_is_absent_is_unknown(absent: str) -> None:
    rows = [line.split(",") for line in KERNELS.splitlines()]
    at = rows[0].index(absent)
    text = "\n".join(",".join(one[:at] + one[at + 1 :]) for one in rows)
    kernel, call = read_kernel_details(stream_of(text), RANK)[0]
    assert (kernel.step, kernel.stream) == (
        -1 if absent == "Step Id" else 5, 0 if absent == "Stream ID" else 2
    )  # fmt: skip
    assert call.call is not None


@pytest.mark.parametrize("absent", ["Name", "Start Time(us)", "Duration(us)"])
def test_a_column_that_is_needed_is_named(absent: str) -> None:
    text = KERNELS.replace(absent, "Other")
    with pytest.raises(InputError, match=r"x\.csv: has no column " + absent.replace("(us)", "")):
        read_kernel_details(stream_of(text), RANK, path="x.csv")


def test_step_times_with_more_and_fewer_columns() -> None:
    old = (
        "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n,10.5,1,2,3,\n"
    )
    (found,) = read_step_trace_time(stream_of(old))
    assert (found.step, found.compute_ns, found.exposed_ns, found.free_ns) == (-1, 10_500, 1000, -1)
    assert (found.stage_ns, found.bubble_ns) == (-1, -1)


def test_communication_ops_are_in_their_groups() -> None:
    (call,), n_unusable = read_communication(stream_of(COMMUNICATION), RANK)
    assert (call.step, call.end_ns - call.start_ns, n_unusable) == (5, 10_500, 0)
    assert call.call is not None
    assert (call.call.op, call.call.desc, call.call.members) == (Op.ALL_REDUCE, "dp", "2-3")


def test_links_by_pair_and_transport() -> None:
    found = read_communication_matrix(stream_of(MATRIX), RANK)
    assert [(one.op, one.ranks, one.transport, one.busbw_gbs) for one in found] == [
        (Op.REDUCE_SCATTER, (2, 3), "HCCS", 20.0), (Op.REDUCE_SCATTER, (), "RDMA", 10.0)
    ]  # fmt: skip


def test_the_view_of_the_trace() -> None:
    slices, n_unusable = read_trace_view(stream_of(VIEW), RANK)
    assert [(one.name, one.end_ns - one.start_ns) for one in slices] == [
        ("MatMul", 2500), ("hcom_allGather__1_0_1", 4000)
    ]  # fmt: skip
    call = slices[1].call
    assert call is not None
    assert (call.op, call.size_bytes, n_unusable) == (Op.ALL_GATHER, 20, 0)


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (KERNELS, is_kernel_details), ("Step,Computing,Communication(Not Overlapped),Overlapped\n",
        is_step_trace_time), (COMMUNICATION, is_communication), (MATRIX, is_communication_matrix),
        (VIEW, is_trace_view),
    ],
    ids=["kernels", "steps", "communication", "matrix", "view"],
)  # fmt: skip
def test_each_is_known_by_its_content(value: object, is_one: Any) -> None:
    head = stream_of(value).getvalue()
    assert is_one(head)
    assert form_of(head) is FileForm.TRACE
    others = [
        is_kernel_details,
        is_step_trace_time,
        is_communication,
        is_communication_matrix,
        is_trace_view,
    ]
    assert [one for one in others if one(head)] == [is_one]


@pytest.mark.parametrize(
    "read", [read_communication, read_communication_matrix, read_trace_view, read_kernel_details]
)
@pytest.mark.parametrize(
    "text", ['{"a": 1}{"b": 2}', "[1,", "", "\0\1", '{"step1": [1]}', "[" * 5000]
)
def test_a_wrong_file_is_named_or_empty(read: Any, text: str) -> None:
    try:
        found = read(stream_of(text), RANK, path="x")
    except InputError as error:
        found = str(error)[:3]
    assert found in (([], 0), (), "x: ")


def test_files_of_one_folder_are_one_trace_and_damaged_ones_are_named(tmp_path: Path) -> None:
    out = tmp_path / "rank_2_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    (out / "kernel_details.csv").write_text(KERNELS)
    (out / "communication.json").write_text(json.dumps(COMMUNICATION))
    (out / "communication_matrix.json").write_text(json.dumps(MATRIX)[:-3])
    (out.parent / "profiler_metadata.json").write_text(json.dumps(METADATA))
    (profile,) = read_ascend_profiles(sorted(out.iterdir()))
    (trace,) = profile.traces
    assert [one.call.members for one in trace.slices if one.call is not None] == ["2-3"]
    assert (trace.global_rank, trace.world_size, trace.n_unusable) == (2, 4, 1)
    assert [one.reason.code for one in profile.unread] == ["unread.damaged"]
    found = trace_evidence(sorted(out.iterdir()))
    assert [one.global_rank for one in found.activities] == [2, 2]
    assert [one.code for one in found.missing] == ["missing.trace_events"]


def test_without_metadata_the_rank_is_that_of_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "rank_5_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    (out / "kernel_details.csv").write_text(KERNELS)
    (profile,) = read_ascend_profiles([out / "kernel_details.csv"])
    assert profile.traces[0].global_rank == 5


def test_a_database(tmp_path: Path) -> None:
    names = ["AI_CORE", "MatMul", "hcom_allReduce__1_0_1", "group_name_7", "MEMCPY_ASYNC"]
    path = database(tmp_path / "ascend.db", {
        "STRING_IDS": ("id INTEGER, value TEXT", list(enumerate(names))),
        "TASK": (
            "startNs INTEGER, endNs INTEGER, globalTaskId INTEGER, taskType INTEGER, streamId",
            [(100, 200, 1, 0, 2), (150, 160, 2, 4, 3), (150, 170, 3, 4, 3), (5, 1, 1, 0, 2)],
        ),
        "COMPUTE_TASK_INFO": ("name INTEGER, globalTaskId INTEGER", [(1, 1)]),
        "COMMUNICATION_TASK_INFO": ("globalTaskId INTEGER", [(3,)]),
        "COMMUNICATION_OP": (
            "opName, startNs INTEGER, endNs INTEGER, groupName, count INTEGER, dataType",
            [(2, 120, 300, 3, 8, 4)],
        ),
        "ENUM_HCCL_DATA_TYPE": ("id INTEGER, name TEXT", [(4, "FP32")]),
        "RANK_DEVICE_MAP": ("rankId INTEGER, deviceId INTEGER", [(6, 0)]),
        "STEP_TIME": ("id INTEGER, startNs INTEGER, endNs INTEGER", [(50, 90, 180)]),
    })  # fmt: skip
    (profile,) = read_ascend_profiles([path])
    (trace,) = profile.traces
    assert [(one.name, one.start_ns, one.step) for one in trace.slices] == [
        ("MatMul", 100, 50), ("hcom_allReduce__1_0_1", 120, 50), ("MEMCPY_ASYNC", 150, 50)
    ]  # fmt: skip
    call = trace.slices[1].call
    assert call is not None
    assert (call.op, call.size_bytes, trace.global_rank, trace.n_unusable) == (
        Op.ALL_REDUCE,
        32,
        6,
        1,
    )
