"""Profiler traces among the files of a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from comminsight.diagnosis import codes_trace
from comminsight.diagnosis.job_coverage import job_coverage
from comminsight.errors import InputError
from comminsight.model.activity import LaunchCount
from comminsight.model.ops import Op
from comminsight.pipeline import job_evidence
from comminsight.pipeline.ascend_profiles import read_ascend_profiles
from comminsight.pipeline.evidence_files import FileForm, form_of, sorted_files
from comminsight.pipeline.job_evidence import gather
from comminsight.pipeline.traces import trace_evidence
from tests.builders.activities import comm, compute, shifted
from tests.builders.inspector import inspector_text
from tests.builders.kineto import TORCH, Style, rank_trace, write_trace, write_traces
from tests.builders.nsys import database, nsys_tables

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


def inspected(folder: Path, world: int, n_given: int) -> list[Path]:
    for rank in range(n_given):
        (folder / f"i{rank}.log").write_bytes(inspector_text(rank, world, range(9)))
    return sorted(folder.glob("i*.log"))


def nsight(folder: Path, world: int, n_given: int) -> list[Path]:
    tables = nsys_tables(range(100, 100 + n_given), world=world)
    return [database(folder / "all.sqlite", tables)]


@pytest.mark.parametrize("given", [inspected, nsight])
@pytest.mark.parametrize(("world", "n_given"), [(8, 2), (4, 4), (64, 3)])
def test_no_rank_is_missing_from_a_world_that_is_inferred(
    given: Callable[[Path, int, int], list[Path]], world: int, n_given: int, tmp_path: Path
) -> None:
    paths = given(tmp_path, world, n_given)
    job = gather(paths).job
    assert (job.world_size, job.inferred_world_size) == (0, world)
    told = [one.params for one in job.missing if one.code == codes_trace.WORLD_INFERRED]
    assert told == [{"n_ranks": world}]
    coverage = job_coverage(job)
    assert (coverage.ranks_expected, coverage.ranks_seen) == (n_given, n_given)
    assert coverage.ranks_missing == ()
    stated = gather(paths, world_size=world).job
    assert (stated.world_size, stated.inferred_world_size) == (world, 0)
    assert codes_trace.WORLD_INFERRED not in {one.code for one in stated.missing}
    assert job_coverage(stated).ranks_missing == tuple(range(n_given, world))


def test_a_world_that_a_trace_states_is_not_inferred(tmp_path: Path) -> None:
    traces = write_traces(tmp_path / "k", STEP, 2)
    job = gather([traces, *inspected(tmp_path, 64, 2)]).job
    assert (job.world_size, job.inferred_world_size) == (2, 0)


@pytest.mark.parametrize("name", ["gone/kernel_details.csv", "a_file/kernel_details.csv"])
def test_a_profile_that_the_system_does_not_give_is_not_called_damaged(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "a_file").write_bytes(b"x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/kernel_details.csv").write_bytes(b"Name,Type\n")
    profiles = read_ascend_profiles([tmp_path / name, tmp_path / "broken/kernel_details.csv"])
    reasons = {Path(one.file).parent.name: one.reason.code for p in profiles for one in p.unread}
    assert reasons == {Path(name).parent.name: "unread.unreadable", "broken": "unread.damaged"}


@pytest.mark.parametrize(("is_gone", "reason"), [(True, "unreadable"), (False, "damaged")])
def test_a_dump_and_an_answer_that_vanish_are_not_called_damaged(
    is_gone: bool, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_traces(tmp_path / "k", STEP, 2)
    (tmp_path / "dump_0.json").write_text('{"version": "2.5", "entries": [], "pg_config": 7')
    (tmp_path / "ras.json").write_text('{"nccl_version": "2.28.3", "communicators_count": "x"')
    files = sorted_files([tmp_path])
    assert (len(files.dumps), len(files.ras)) == (1, 1)
    monkeypatch.setattr(job_evidence, "sorted_files", lambda _: files)
    for path in (*files.dumps, *files.ras) if is_gone else ():
        path.unlink()
    job = gather([tmp_path]).job
    reasons = {Path(one.file).name: one.reason.code for one in job.unread}
    assert reasons == dict.fromkeys(("dump_0.json", "ras.json"), f"unread.{reason}")
