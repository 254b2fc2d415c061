"""Real small jobs under ``comminsight run``, and every verb on what they left: complete, copied to
another machine, with parts missing, while the job runs, and after everything was killed."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from comminsight.errors import ExitCode
from comminsight.lab.truth import read_truth
from comminsight.pipeline.load import live_box_dir
from comminsight.run import open_run
from tests.builders.json_schema import violations
from tests.integration.launching import (
    CLI,
    REPO,
    environment,
    ranks,
    recorded,
    report,
    started,
    theirs,
    until,
    verb,
)
from tests.integration.recording import skip_without_real_jobs

FOREIGN_BOOT = "0f0f0f0f-0000-4000-8000-000000000000"
SCHEMA = json.loads((REPO / "docs" / "schema" / "run-report.json").read_text())
N_STEPS = 14

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def _with_recorder():
    skip_without_real_jobs()


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """Two ranks under torchrun, ended in order."""
    folder = tmp_path_factory.mktemp("healthy")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    job = ("-m", "comminsight.lab.job", "--job", "ddp", "--steps", str(N_STEPS), "--marks")
    code, _, err = recorded(folder / "run", *torchrun, *job, str(folder / "truth"))
    assert code == 0, err.decode()
    return folder / "run"


@pytest.fixture
def run(healthy, tmp_path):
    return shutil.copytree(healthy, tmp_path / "run")


def steps_of(run):
    done = verb("steps", run, "--json")
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)["steps"]


def own_boxes(run_id):
    names = [path for path in live_box_dir().glob("*.box") if run_id.encode() in path.read_bytes()]
    return sorted(names)


def test_a_job_that_ended_in_order(healthy):
    made = report(healthy)
    assert made["facts"]["end"] == "exited"
    assert made["facts"]["exit_code"] == 0
    assert made["facts"]["ranks_seen"] == made["facts"]["world_size"] == 2
    assert made["facts"]["killed_ranks"] == []
    assert made["coverage"]["records_lost"] == 0
    assert made["notes"] == []
    assert not any(verdict["culprits"] for verdict in made["verdicts"])
    truth = [t for t in read_truth(healthy.parent / "truth") if t["kind"] == "step"]
    assert [row["step"] for row in steps_of(healthy)] == sorted({t["step"] for t in truth})
    assert len(list((healthy / "blackbox").glob("*.box"))) == 2
    assert own_boxes(made["facts"]["run_id"]) == []


def test_the_json_is_as_its_schema_says(healthy):
    made = report(healthy)
    assert violations(made, SCHEMA) == []
    assert violations({**made, "steps": 3}, SCHEMA) == ["$.steps: 3 is no array"]


@pytest.mark.parametrize("clock", ["raw", "aligned"])
def test_the_clock_is_visible(clock, healthy):
    assert report(healthy, "--clock", clock)["facts"]["clock"] == clock
    text = verb("report", healthy, "--clock", clock).stdout.decode()
    assert {"raw": "own wall clock", "aligned": "one clock: all ranks on one node"}[clock] in text


def test_rebuilt_steps_are_those_of_the_report(run):
    shutil.rmtree(run / "blackbox")
    told = verb("rebuild", run)
    assert told.returncode == 0
    files = sorted((run / "steps").glob("*.jsonl"))
    rebuilt = [[json.loads(line) for line in path.read_text().splitlines()] for path in files]
    assert [len(own) for own in rebuilt] == [N_STEPS, N_STEPS]
    for rows in zip(steps_of(run), *rebuilt, strict=True):
        assert len({row["step"] for row in rows}) == 1
        assert rows[0]["n_ops"] == sum(row["n_ops"] for row in rows[1:])
        spans = [row["span_ns"] for row in rows[1:]]
        assert abs(rows[0]["span_ns"] - sum(spans) / 2) <= 1


@pytest.mark.parametrize("gone", ["blackbox", "inspector_logs", "metadata", "hangs"])
def test_one_kind_of_evidence_is_enough(gone, run, healthy):
    shutil.rmtree(run / gone)
    assert steps_of(run) == steps_of(healthy)
    assert report(run)["facts"]["end"] == "exited"


def test_the_same_on_another_machine(run, monkeypatch, healthy):
    here = open_run(healthy).report()
    with elsewhere(monkeypatch):
        there = open_run(run).report()
    assert there.steps == here.steps
    assert there.verdicts == here.verdicts
    assert there.facts.end == here.facts.end == "exited"


@contextlib.contextmanager
def elsewhere(monkeypatch):
    with monkeypatch.context() as patch:
        for module in ("capture.box", "pipeline.facts", "pipeline.load"):
            patch.setattr(f"comminsight.{module}.boot_id", lambda: FOREIGN_BOOT)
        yield


@pytest.mark.parametrize("form", ["parquet", "inspector"])
def test_export(form, run, tmp_path):
    done = verb("export", run, "--format", form, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr.decode()
    paths = done.stdout.decode().split()
    assert paths
    assert all(os.path.getsize(path) for path in paths)


@contextlib.contextmanager
def read_only(run):
    """Root writes everywhere but on a read-only mount."""
    if os.geteuid():
        run.chmod(0o555)
        yield
        run.chmod(0o755)
        return
    for words in (["--bind", str(run), str(run)], ["-o", "remount,ro,bind", str(run)]):
        if subprocess.run(["mount", *words], capture_output=True, check=False).returncode:
            pytest.skip("this machine does not let us mount read-only")
    yield
    subprocess.run(["umount", "-l", str(run)], check=True)


def test_a_read_only_run(run):
    with read_only(run):
        for words in (("report",), ("steps",), ("show", "--rank", "1", "--step", "3")):
            done = verb(words[0], run, *words[1:])
            assert done.returncode == 0, done.stderr.decode()
        for words in (("rebuild",), ("export", "--format", "parquet"),
                      ("export", "--format", "inspector")):  # fmt: skip
            done = verb(words[0], run, *words[1:])
            assert done.returncode == ExitCode.BAD_INPUT, done.stderr.decode()
            assert str(run).encode() in done.stderr


@pytest.mark.parametrize("words", [("report",), ("report", "--json"), ("steps",)])
def test_a_reader_that_goes_away_is_no_error(words, healthy):
    shell = " ".join([*CLI, words[0], str(healthy), *words[1:]])
    piped = f"{shell} | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", piped], capture_output=True, env=environment(), cwd=REPO, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_exit_codes_and_languages(run):
    for verb_words in (("report",), ("steps",), ("show", "--rank", "0", "--step", "2")):
        told = verb(verb_words[0], run, *verb_words[1:], "--lang", "zh")
        assert told.returncode == 0
        assert any("\u4e00" <= letter <= "\u9fff" for letter in told.stdout.decode())
    assert verb("report", run, "--strict", "--fail-on", "any").returncode == 0
    assert verb("show", run, "--rank", "0", "--step", "99").returncode == ExitCode.BAD_INPUT
    sessions = sorted((run / "inspector_logs").iterdir())
    shutil.rmtree(sessions[0])
    shutil.rmtree(run / "blackbox")
    assert verb("report", run, "--strict").returncode == ExitCode.PARTIAL


def test_a_restart_into_the_same_directory(tmp_path):
    """The first life keeps its boxes in the folder that the recorder falls back to."""
    job = ranks(2, "--job", "ddp", "--steps", 9)
    same = {"COMMINSIGHT_RUN_ID": "restarted"}
    refused = {"COMMINSIGHT_BOX_DIR": "/proc/no-boxes-here", **same}
    assert recorded(tmp_path / "run", *job, env=refused)[0] == 0
    first = report(tmp_path / "run")
    assert len(list((tmp_path / "run" / "blackbox").glob("*.box"))) == 2
    assert not (tmp_path / "run" / "inspector_logs" / "boxes").exists()
    job = ranks(2, "--job", "ddp", "--steps", 12)
    assert recorded(tmp_path / "run", *job)[0] == ExitCode.USAGE  # another run would be mixed in
    assert recorded(tmp_path / "run", *job, env=same)[0] == 0
    second = report(tmp_path / "run")
    assert (len(first["steps"]), len(second["steps"])) == (9, 12)
    assert first["notes"] == []
    assert second["notes"] == [{"code": "note.earlier_lives", "params": {"ranks": [0, 1]}}]
    assert second["facts"]["end"] == "exited"


@pytest.mark.parametrize(
    ("how", "status"), [("exception", "exit code 1"), ("sigkill", "signal 9 (SIGKILL)")]
)
def test_the_first_rank_that_fails_is_named_and_not_those_ended_after_it(how, status, tmp_path):
    fault = ("--exit-rank", 2, "--exit-at", 60, "--exit-how", how)
    job = ranks(4, "--job", "ddp", "--steps", 400, "--compute-ms", 10, *fault)
    assert recorded(tmp_path / "run", *job)[0] == 1
    made = report(tmp_path / "run")
    verdict = made["verdicts"][0]
    assert (verdict["cause"], verdict["culprits"]) == ("RANK_DEAD", [2])
    died = [e["message"]["params"] for e in verdict["evidence"] if e["kind"] == "process"]
    assert died == [{"rank": 2, "exit_status": status}]
    assert verb("report", tmp_path / "run", "--fail-on", "any").returncode == ExitCode.FINDING
    text = verb("report", tmp_path / "run").stdout.decode()
    assert "Rank 2" in text.splitlines()[0]
    assert "absent" not in text


def test_a_torchrun_that_fails(tmp_path):
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    code, _, err = recorded(tmp_path / "run", *torchrun, "--no-python", "sh", "-c", "exit 3")
    assert code == 1
    assert b"ChildFailedError" in theirs(err)
    assert report(tmp_path / "run")["facts"]["exit_code"] == 1


def test_while_it_runs_and_after_everything_was_killed(tmp_path, monkeypatch):
    run = tmp_path / "run"
    job = ranks(2, "--job", "ddp", "--steps", 100000, "--compute-ms", 5)
    process = started(run, *job, start_new_session=True)
    try:
        until(lambda: len(open_run(run).step_rows()) > 20, poll_s=0.3)
        live = report(run)
        assert live["facts"]["end"] == "running"
        assert live["coverage"]["ranks_seen"] == 2
        assert live["coverage"]["records_lost"] == 0
        assert len(steps_of(run)) >= len(live["steps"]) > 20
        shown = json.loads(verb("show", run, "--rank", "1", "--step", "5", "--json").stdout)
        assert shown["ops"]
        process.kill()
        process.wait()
        assert report(run)["facts"]["end"] == "running"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    after = open_run(run).report()
    assert after.facts.end == "killed"
    assert after.facts.killed_ranks == (0, 1)
    assert after.verdicts[0].cause == "JOB_KILLED"
    assert len(after.steps) >= len(live["steps"])
    run_id = after.facts.run_id
    copied = shutil.copytree(run, tmp_path / "copied")
    with elsewhere(monkeypatch):
        there = open_run(copied).report()
    assert there.facts.end == "unknown"
    print([(v.rule, v.cause, v.culprits) for v in there.verdicts])
    assert not any(v.culprits for v in there.verdicts if v.rule in {"hang", "killed"})
    for box in own_boxes(run_id):
        box.unlink()
