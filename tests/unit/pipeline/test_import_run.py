"""Imported runs: what they keep, what they refuse, and that they are judged as their files are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.model.ops import Op
from comminsight.model.report import RunReport
from comminsight.pipeline.diagnose import diagnose
from comminsight.pipeline.import_report import report_imported
from comminsight.pipeline.import_run import evidence_of, import_run, read_import
from comminsight.pipeline.import_sources import kept_names
from comminsight.run import open_run
from tests.builders.activities import comm, compute, in_steps, on_ranks, shifted
from tests.builders.flight_recorder import parallel_job, write_dumps
from tests.builders.kineto import write_traces


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    folder = tmp_path / "node-a"
    folder.mkdir()
    job = parallel_job(2, 2, 2)
    job.host_stops[5] = 30
    write_dumps(folder, job.play())
    (folder / "train.log").write_text("[rank5]: loading\n")
    return folder


def told(report: RunReport) -> list[tuple[object, ...]]:
    return [(v.cause, v.culprits, v.victims, v.confidence) for v in report.verdicts]


def reported(out: Path) -> RunReport:
    manifest = read_import(out)
    assert manifest is not None
    return report_imported(open_run(out).report(), out, manifest)


def test_what_is_kept_is_what_was_given_and_is_judged_the_same(dumps: Path, tmp_path: Path) -> None:
    made = import_run([dumps], tmp_path / "run")
    assert {one.form for one in made.files} == {"flight_recorder", "log"}
    for one, kept in zip(made.files, evidence_of(tmp_path / "run", made), strict=True):
        original = dumps / kept.name
        assert kept.read_bytes() == original.read_bytes()
        assert kept.stat().st_mtime_ns == original.stat().st_mtime_ns
        assert one.sha256 == hashlib.sha256(original.read_bytes()).hexdigest()
        assert one.size_bytes == original.stat().st_size
    assert told(reported(tmp_path / "run")) == told(diagnose([dumps]))
    assert told(diagnose([dumps]))[0][1] == (5,)


def test_nothing_is_overwritten_and_nothing_half_is_left(dumps: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    out.mkdir(parents=True)
    (out / "mine").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        import_run([dumps], out)
    assert [p.name for p in out.iterdir()] == ["mine"]
    (dumps / "gone").symlink_to(dumps / "nowhere")
    with pytest.raises(InputError):
        import_run([dumps, dumps / "gone"], tmp_path / "runs" / "b")
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["a"]


def test_an_interrupted_import_leaves_nothing(
    dumps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("comminsight.pipeline.import_run.write_manifest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        import_run([dumps], tmp_path / "runs" / "a")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_manifest_that_leads_out_of_the_run_is_refused(dumps: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    made = import_run([dumps], out)
    path = out / "metadata" / "import.json"
    path.write_text(path.read_text().replace(made.files[0].path, "../../etc/passwd"))
    with pytest.raises(InputError, match="outside of the run"):
        reported(out)


def test_names_keep_their_places_and_never_meet(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "log.txt", tmp_path / "b" / "log.txt", tmp_path / "b" / ".." / "c"]
    top = tmp_path.name
    assert [str(name) for name in kept_names(paths)] == [
        f"{top}/a/log.txt", f"{top}/b/log.txt", f"{top}/c",
    ]  # fmt: skip


STEP = [
    one for rank in (0, 1) for one in (
        compute(rank, 0, 300), comm(rank, Op.ALL_REDUCE, 300, 80, size_bytes=1 << 20),
        compute(rank, 400, 100), comm(rank, Op.ALL_REDUCE, 500, 40, size_bytes=4096),
    )
]  # fmt: skip


def test_collectives_of_a_trace_become_ops_that_ranks_match_on(tmp_path: Path) -> None:
    steps = [shifted(one, 1_000 * n) for n in range(30) for one in STEP]
    write_traces(tmp_path / "traces", steps, 2)
    made = import_run([tmp_path / "traces"], tmp_path / "run")
    assert [(one.global_rank, one.n_read, one.n_written) for one in made.ranks] == [
        (0, 60, 60), (1, 60, 60),
    ]  # fmt: skip
    for one in made.ranks:
        assert one.n_read == one.n_written + one.n_bad + sum(one.dropped.values())
    run = open_run(tmp_path / "run")
    assert [comm.members for comm in run.trace.communicators] == [(0, 1)]
    for rank in run.trace.ranks:
        assert rank.ops["match_seq"].tolist() == list(range(1, 61))
        assert rank.ops["size_bytes"].tolist()[:2] == [1 << 20, 4096]
    assert run.tally["segment_frames_bad"] == 0
    assert told(reported(tmp_path / "run")) == told(diagnose([tmp_path / "traces"]))


@pytest.mark.parametrize("sizes", [(25 << 20, 25 << 20, 4 << 20), (1 << 20, 4096)])
def test_buckets_of_a_trace_become_steps(sizes: tuple[int, ...], tmp_path: Path) -> None:
    buckets = [
        one for n, size in enumerate(sizes) for one in (
            compute(0, 300 + n * 200, 150),
            comm(0, Op.ALL_REDUCE, 500 + n * 200, 120, size_bytes=size),
        )
    ]  # fmt: skip
    job = on_ranks((0, 1), in_steps([compute(0, 0, 300), *buckets], 14, 10_000))
    import_run([write_traces(tmp_path / "traces", job, 2)], tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert [sorted(step.members) for step in run.aligned_steps] == [[0, 1]] * 14
    windows = [one for step in run.aligned_steps for one in step.members.values()]
    assert {one.template.partition("@")[0] for one in windows} == {"ddp"}
    assert all(one.coverage_complete for one in windows)
