"""Exports of Nsight Systems made here, by the tables that its documentation names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.format.nsys import NEXT_STEP, is_nsys, read_nsys
from comminsight.format.sqlite_file import SqliteFile
from comminsight.model.activity import ActivityKind
from comminsight.model.device_trace import CollectiveCall, DeviceTrace
from comminsight.model.ops import Op
from comminsight.pipeline.evidence_files import FileForm, form_of
from comminsight.pipeline.traces import trace_evidence
from comminsight.semantics.trace_activities import activities_of
from tests.builders.nsys import EPOCH_NS, KERNEL, NVTX, database, nsys_tables, thread_of


def traces_of(path: Path) -> tuple[DeviceTrace, ...]:
    with SqliteFile(str(path), next_step=NEXT_STEP) as base:
        assert is_nsys(base.tables)
        return read_nsys(base, path=str(path))


def test_kernels_with_their_calls_on_the_wall_clock(tmp_path: Path) -> None:
    (trace,) = traces_of(database(tmp_path / "a.sqlite", nsys_tables()))
    gemm, reduce = trace.slices
    assert (gemm.start_ns, gemm.end_ns) == (EPOCH_NS + 1000, EPOCH_NS + 2000)
    assert (gemm.name, gemm.stream, gemm.call) == ("gemm", 7, None)
    assert reduce.call == CollectiveCall(
        op=Op.ALL_REDUCE, size_bytes=4 << 20, group="0xabc", is_own=False
    )
    kinds = [one.kind for one in activities_of(trace)]
    assert kinds == [ActivityKind.COMPUTE, ActivityKind.COMMUNICATION]
    assert (trace.global_rank, trace.world_size) == (-1, 0)


def test_the_rank_is_that_of_the_largest_communicator(tmp_path: Path) -> None:
    path = database(tmp_path / "a.sqlite", nsys_tables((100, 200), world=2))
    assert [(one.global_rank, one.world_size) for one in traces_of(path)] == [(0, 2), (1, 2)]
    assert {one.global_rank for one in trace_evidence([path]).activities} == {0, 1}


def test_without_ranges_the_rank_is_that_of_the_name(tmp_path: Path) -> None:
    (trace,) = traces_of(database(tmp_path / "run_rank3.sqlite", nsys_tables()))
    assert trace.global_rank == 3


def test_several_processes_without_ranks_are_not_used_as_ranks(tmp_path: Path) -> None:
    found = trace_evidence([database(tmp_path / "rank3.sqlite", nsys_tables((100, 200)))])
    assert found.activities == ()
    assert [one.reason.code for one in found.unread] == ["unread.no_rank"] * 2


def test_a_kernel_launched_by_the_end_of_a_group_has_no_call(tmp_path: Path) -> None:
    tables = nsys_tables()
    tables["NVTX_EVENTS"] = NVTX, [(940, 970, 59, None, 3, 2, thread_of(100), None)]
    (trace,) = traces_of(database(tmp_path / "a.sqlite", tables))
    assert trace.slices[1].call is None
    assert [one.op for one in activities_of(trace)] == [Op.UNKNOWN, Op.ALL_REDUCE]  # by its name


@pytest.mark.parametrize("absent", [
    "TARGET_INFO_SESSION_START_TIME", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
])  # fmt: skip
def test_a_table_that_is_absent_leaves_out_what_it_would_tell(tmp_path: Path, absent: str) -> None:
    tables = nsys_tables()
    del tables[absent]
    (trace,) = traces_of(database(tmp_path / "a.sqlite", tables))
    assert [one.end_ns - one.start_ns for one in trace.slices] == [1000, 2000]
    call = trace.slices[1].call
    assert (call is None) == (absent in {"CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"})
    if absent == "NVTX_PAYLOAD_SCHEMA_ENTRIES":
        assert call == CollectiveCall(op=Op.ALL_REDUCE, is_own=False)


def test_a_column_that_is_absent_and_stamps_that_are_none(tmp_path: Path) -> None:
    tables = nsys_tables()
    columns = KERNEL.replace(" streamId INTEGER,", "")
    rows = [
        (10, 20, 0, 1, 1, 1),
        (None, 20, 0, 1, 1, 1),
        (30, 20, 0, 1, 1, 1),
        ("x", 1, 0, 1, 1, 1),
    ]
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = columns, rows
    (trace,) = traces_of(database(tmp_path / "a.sqlite", tables))
    assert (len(trace.slices), trace.n_unusable, trace.slices[0].stream) == (1, 3, 0)


def test_no_kernels_are_an_error_with_what_was_expected(tmp_path: Path) -> None:
    tables = nsys_tables()
    del tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    with pytest.raises(InputError, match="CUPTI_ACTIVITY_KIND_KERNEL"):
        traces_of(database(tmp_path / "a.sqlite", tables))


def test_a_database_of_something_else_is_named_and_the_others_read(tmp_path: Path) -> None:
    other = database(tmp_path / "other.db", {"t": ("a INTEGER", [(1,)])})
    empty = database(
        tmp_path / "empty.db", {"META_DATA_EXPORT": ("a", []), "StringIds": ("id", [])}
    )
    cut = tmp_path / "cut.db"
    cut.write_bytes(other.read_bytes()[:600])
    good = database(tmp_path / "rank0.sqlite", nsys_tables())
    assert form_of(other.read_bytes()) is FileForm.TRACE
    found = trace_evidence([other, empty, cut, good])
    reasons = {one.file.rpartition("/")[2]: one.reason.code for one in found.unread}
    assert reasons == {
        "other.db": "unread.unknown_form", "empty.db": "unread.damaged", "cut.db": "unread.damaged",
    }  # fmt: skip
    assert len(found.activities) == 2


def test_views_and_other_files_are_not_followed(tmp_path: Path) -> None:
    path = database(tmp_path / "a.sqlite", nsys_tables())
    with SqliteFile(str(path), next_step=NEXT_STEP) as base:
        assert list(base.rows("sqlite_schema_of_nobody", ("a",), limit=9)) == []
        with pytest.raises(InputError, match="more than 1 rows in StringIds"):
            list(base.rows("StringIds", ("id",), limit=1))
        with pytest.raises(Exception, match=r"prohibited|not authorized"):
            base._base.execute("ATTACH DATABASE 'x' AS y")


def test_a_pipe_in_the_place_of_a_database_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.sqlite")
    with pytest.raises(InputError, match=r"a\.sqlite: is no file"):
        SqliteFile(str(tmp_path / "a.sqlite"), next_step=NEXT_STEP)


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.sqlite: .*can be read: .*No such"):
        SqliteFile(str(tmp_path / "a.sqlite"), next_step=NEXT_STEP)
