"""Profiler traces among the files of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.model.activity import LaunchCount
from comminsight.model.ops import Op
from comminsight.pipeline.evidence_files import FileForm, form_of
from comminsight.pipeline.job_evidence import gather
from comminsight.pipeline.traces import trace_evidence
from tests.builders.activities import comm, compute, shifted
from tests.builders.kineto import TORCH, Style, rank_trace, write_trace, write_traces

STEP = [
    one for rank in (0, 1) for one in (
        compute(rank, 0, 300), comm(rank, Op.ALL_REDUCE, 300, 80, size_bytes=4096)
    )
]  # fmt: skip
NO_RANK = Style(has_header=False)


def test_the_activities_of_all_ranks(tmp_path: Path) -> None:
    job = gather([write_traces(tmp_path, STEP, 2)]).job
    said = [(one.global_rank, one.kind.value, one.size_bytes) for one in job.activities]
    assert said == [
        (0, "compute", 0), (0, "communication", 4096), (1, "compute", 0),
        (1, "communication", 4096),
    ]  # fmt: skip
    assert {one.comm_label for one in job.activities if one.op} == {"default_pg:0 (0-1)"}
    assert [one.start_ns for one in job.activities] == [one.start_ns for one in STEP]
    assert job.world_size == 2
    assert job.launches == tuple(
        LaunchCount(global_rank=rank, n_launches=2, n_kernels=2) for rank in (0, 1)
    )


def test_two_windows_of_a_rank_are_one_trace(tmp_path: Path) -> None:
    later = [shifted(one, 5_000) for one in STEP]
    for name, own in (("a", STEP), ("b", later)):
        write_trace(tmp_path / f"{name}.json", rank_trace(0, 2, own))
    found = trace_evidence(sorted(tmp_path.iterdir()))
    assert (len(found.activities), found.unread) == (4, ())
    assert found.launches == (LaunchCount(global_rank=0, n_launches=4, n_kernels=4),)


def test_two_processes_that_claim_one_rank_are_both_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_trace(tmp_path / f"{name}.json", rank_trace(0, 2, STEP))
    write_trace(tmp_path / "c.json", rank_trace(1, 2, STEP))
    found = trace_evidence(sorted(tmp_path.iterdir()))
    assert {one.global_rank for one in found.activities} == {1}
    reasons = [(Path(one.file).name, one.reason.code) for one in found.unread]
    assert reasons == [("a.json", "unread.same_rank"), ("b.json", "unread.same_rank")]


def test_a_file_that_tells_no_rank_is_used_only_alone(tmp_path: Path) -> None:
    nameless = write_trace(tmp_path / "one.json", rank_trace(0, 2, STEP, NO_RANK))
    assert len(trace_evidence([nameless]).activities) == 2
    named = write_trace(tmp_path / "two_rank1.json", rank_trace(1, 2, STEP, TORCH))
    found = trace_evidence([nameless, named])
    assert {one.global_rank for one in found.activities} == {1}
    assert [one.reason.code for one in found.unread] == ["unread.no_rank"]


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".log", ""])
def test_a_trace_is_told_by_its_content(suffix: str, tmp_path: Path) -> None:
    place = tmp_path / f"anything_rank0{suffix}"
    place.write_bytes(write_trace(tmp_path / "t.json", rank_trace(0, 2, STEP)).read_bytes())
    assert form_of(place.read_bytes()[:200]) is FileForm.TRACE
    assert len(gather([place]).job.activities) == 2


def test_a_merged_file_says_so_and_does_not_stop_the_others(tmp_path: Path) -> None:
    merged = rank_trace(0, 2, STEP)
    merged["traceEvents"] += rank_trace(1, 2, STEP)["traceEvents"]
    place = write_trace(tmp_path / "merged.json", merged)
    with pytest.raises(InputError, match=r"merged\.json: holds 2 processes"):
        gather([place])
    write_trace(tmp_path / "rank1.json", rank_trace(1, 2, STEP))
    job = gather([tmp_path]).job
    assert {one.global_rank for one in job.activities} == {1}
    assert [one.reason.code for one in job.unread] == ["unread.several_processes"]


def test_events_that_are_lost_are_told(tmp_path: Path) -> None:
    document = rank_trace(0, 2, STEP)
    document["traceEvents"][-1]["ts"] = None
    found = trace_evidence([write_trace(tmp_path / "t.json", document)])
    assert [(one.code, one.params["n"]) for one in found.missing] == [("missing.trace_events", 1)]
