"""The rebuild on several processes, on a Ray cluster of two nodes, and with killed workers: the
same bytes as one process gives."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comminsight.analysis.measures import straggler_measures
from comminsight.cli import main
from comminsight.model.session import SessionRecord
from comminsight.pipeline.executor import Err, Ok, PoolExecutor, SerialExecutor
from comminsight.pipeline.layout import run_paths
from comminsight.pipeline.measure_tasks import table_of
from comminsight.pipeline.rebuild_measures import measure_run
from comminsight.pipeline.rebuild_run import rebuild_run
from comminsight.pipeline.rebuild_tasks import Rebuilt, SegmentsTask, rebuild_segments
from comminsight.run import open_run
from comminsight.sim import simulate
from tests.builders.run import small_layout, write_run

ROOT = Path(__file__).resolve().parents[2]
N_STEPS = 30
N_RANKS = 8


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = simulate(small_layout(), steps=N_STEPS, seed=3)
    return write_run(tmp_path_factory.mktemp("recorded"), run)


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    (tmp_path / "inspector_logs").symlink_to(recorded / "inspector_logs")
    return tmp_path


@pytest.fixture(scope="module")
def expected(recorded: Path) -> dict[str, bytes]:
    found = rebuild_run(run_paths(recorded), SerialExecutor())
    assert (len(found.sessions), found.n_steps) == (N_RANKS, N_RANKS * N_STEPS)
    assert not found.is_whole_needed
    return files_of(recorded)


@pytest.fixture
def pool() -> Iterator[PoolExecutor]:
    made = PoolExecutor(2)
    yield made
    made.close()


def files_of(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "steps").iterdir()}


def test_the_steps_are_those_that_the_run_itself_finds(
    recorded: Path, expected: dict[str, bytes]
) -> None:
    for session_id, steps in open_run(recorded, is_segments_only=True).trace.steps.items():
        lines = b"".join(msgspec.json.encode(step) + b"\n" for step in steps)
        assert expected[f"{session_id}.jsonl"] == lines
        record = msgspec.json.decode(expected[f"{session_id}.session.json"], type=SessionRecord)
        assert (record.n_steps, record.template, record.broken) == (N_STEPS, "tp-pp-dp", None)


@pytest.mark.parametrize("words", [["--workers", "1"], ["--workers", "2"], []])
def test_the_command_gives_the_same_with_any_number_of_workers(
    run: Path, expected: dict[str, bytes], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # again over what is there
        assert main(["rebuild", str(run), *words]) == 0
        assert files_of(run) == expected
    assert capsys.readouterr().out.startswith("240 steps of 8 sessions: ")


def test_an_export_gives_the_same(run: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    assert main(["export", str(run), "--format", "parquet", "--out", str(tmp_path / "out")]) == 0
    assert main(["rebuild", str(tmp_path / "out"), "--workers", "2"]) == 0
    assert files_of(tmp_path / "out") == expected


def killed_once(task: SegmentsTask) -> tuple[Rebuilt, ...]:
    """The first attempt on a session with a marker dies when its steps lie aside."""
    marker = Path(task.steps_folder).parent / f"kill-{Path(task.folder).name}"
    if not marker.exists():
        return rebuild_segments(task)
    marker.unlink()
    staging = Path(task.steps_folder) / ".part-dead"
    staging.mkdir(parents=True, exist_ok=True)
    (staging / f"{Path(task.folder).name}.jsonl").write_text("half a st")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def test_killed_workers_change_nothing(
    run: Path, pool: PoolExecutor, expected: dict[str, bytes]
) -> None:
    paths = run_paths(run)
    folders = sorted(paths.segments.iterdir())
    for folder in folders[::3]:
        (run / f"kill-{folder.name}").write_text("")
    tasks = [SegmentsTask(str(folder), str(paths.steps)) for folder in folders]
    results = list(pool.map_unordered(killed_once, tasks))
    assert [result for result in results if isinstance(result, Err)] == []
    assert sorted(
        result.value[0].record.n_steps for result in results if isinstance(result, Ok)
    ) == (  # type: ignore[union-attr]
        [N_STEPS] * N_RANKS
    )
    assert not list(run.glob("kill-*"))
    rebuild_run(paths, pool)  # clears what the dead left behind
    assert files_of(run) == expected


def test_what_does_not_read_is_named_and_the_rest_is_rebuilt(
    recorded: Path, tmp_path: Path, pool: PoolExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "inspector_logs"
    logs.mkdir()
    for folder in sorted((recorded / "inspector_logs").iterdir())[:3]:
        (logs / folder.name).symlink_to(folder)
    broken = logs / "deadbeef-9999-77"
    broken.mkdir()
    (broken / "000001.ciseg").write_bytes(b"no segment" * 100)
    found = rebuild_run(run_paths(tmp_path), pool)
    assert [one.identity.global_rank for one in found.sessions] == [0, 1, 2]
    (problem,) = found.problems
    assert "deadbeef-9999-77/000001.ciseg" in problem
    assert main(["rebuild", str(tmp_path)]) == 0
    assert "not rebuilt: " in capsys.readouterr().err


@pytest.mark.parametrize("is_archive", [False, True], ids=["segments", "export"])
def test_what_does_not_read_any_more_keeps_no_steps_of_an_earlier_rebuild(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], *, is_archive: bool,
) -> None:  # fmt: skip
    """Steps of two templates side by side would pass for those of one run."""
    run = tmp_path / "run"
    if is_archive:
        monkeypatch.setattr("comminsight.store.events.RANKS_PER_FILE", 4)
        monkeypatch.setattr("comminsight.store.sessions.RANKS_PER_FILE", 4)
        assert main(["export", str(recorded), "--format", "parquet", "--out", str(run)]) == 0
        broken, _ = sorted((run / "events").glob("*.parquet"))
    else:
        shutil.copytree(recorded / "inspector_logs", run / "inspector_logs")
        broken, *_ = sorted((run / "inspector_logs").glob("*/*.ciseg"))
    assert main(["rebuild", str(run), "--workers", "1"]) == 0
    before = files_of(run)
    broken.write_bytes(b"no such file" * 100)
    capsys.readouterr()
    assert main(["rebuild", str(run), "--workers", "1", "--strict"]) == 4
    gone = before.keys() - files_of(run).keys()
    assert len(gone) == (8 if is_archive else 2)
    told = capsys.readouterr()
    assert {name for name in gone if f"removed: {name.split('.')[0]};" not in told.err} == set()
    assert told.err.count("not rebuilt: ") == 1
    assert told.out.startswith("120 steps" if is_archive else "210 steps")
    assert main(["rebuild", str(run), "--workers", "1"]) == 0


def test_a_ray_cluster_of_two_nodes_gives_the_same_though_workers_are_killed(
    run: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'comminsight[ray]'")
    markers = tmp_path / "markers"
    markers.mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    out = subprocess.run(
        [sys.executable, "-m", "tests.integration.scale_out_program", str(run), str(markers)],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert out.returncode == 0, out.stderr[-3000:]
    told = json.loads(out.stdout.splitlines()[-1])
    assert told["errors"] == []
    assert (len(told["nodes"]), len(set(told["nodes"]))) == (N_RANKS, 2)
    assert told["n_sessions"] == N_RANKS
    assert files_of(run) == expected


def test_the_second_stage_gives_the_measures_of_the_run(
    run: Path, pool: PoolExecutor, tmp_path: Path
) -> None:
    whole = open_run(run, is_segments_only=True)
    expected_waits = straggler_measures(whole.trace)
    rebuilt = rebuild_run(run_paths(run), pool)
    (all_steps,), problems, _ = measure_run(rebuilt, tmp_path / "one", pool)
    assert (all_steps.n_steps, problems) == (N_STEPS, ())
    assert Path(all_steps.path).name == "steps-000000-000029.parquet"
    assert pq.read_table(all_steps.path) == table_of(expected_waits)
    parts, problems, withheld = measure_run(rebuilt, tmp_path / "three", pool, steps_per_range=11)
    assert ([part.n_steps for part in parts], problems) == ([11, 11, 8], ())
    assert withheld is None
    table = pa.concat_tables([pq.read_table(part.path) for part in parts])
    for name in ("step", "global_rank", "is_complete", "span_ns", "period_ns"):
        assert table[name].equals(table_of(expected_waits)[name]), name
    assert sorted(path.suffix for path in (tmp_path / "three").iterdir()) == [".parquet"] * 3
    again, *_ = measure_run(rebuilt, tmp_path / "one", SerialExecutor())
    assert again == (all_steps,)


def test_the_command_writes_the_measures_beside_the_steps(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rebuild", str(run), "--workers", "1", "--measures"]) == 0
    assert "30 steps measured in 1 range: " in capsys.readouterr().out
    table = pq.read_table(run / "measures" / "steps-000000-000029.parquet")
    assert (table.num_rows, table.schema.metadata[b"comminsight.schema_version"]) == (240, b"1")
