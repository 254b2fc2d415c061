"""Real jobs that hang under ``comminsight run``: who is absent, from which op, who waits, and the
stack by whatever rung of the ladder the site allows. All jobs run at the same time: they wait."""

import json
import os
import shutil
import signal
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from comminsight.model.verdict import Cause
from comminsight.pipeline.load import live_box_dir
from comminsight.run import open_run
from tests.builders.json_schema import violations
from tests.integration.launching import REPO, ranks, report, started, theirs, until, verb
from tests.integration.recording import skip_without_real_jobs

N_RANKS = 3
ABSENT = 1
OVERDUE_S = 3
STALL_S = 6
STUCK_IN = "load_next_batch_forever"

pytestmark = [pytest.mark.real, pytest.mark.slow]


@dataclass
class Ended:
    run: Path
    code: int
    err: str


@pytest.fixture(scope="module")
def denied(tmp_path_factory):
    """A Python beside which py-spy is refused, as on a site without ptrace."""
    folder = tmp_path_factory.mktemp("bin")
    python = folder / "python"
    python.symlink_to(Path(sysconfig.get_config_var("BINDIR")) / "python3")
    py_spy = folder / "py-spy"
    py_spy.write_text("#!/bin/sh\necho 'Error: Permission denied (os error 13)' >&2\nexit 1\n")
    py_spy.chmod(0o755)
    return {"python": str(python), "env": {"PYTHONPATH": sysconfig.get_path("purelib")}}


@pytest.fixture(scope="module")
def hung(tmp_path_factory, denied):
    skip_without_real_jobs()
    folder = tmp_path_factory.mktemp("hang")
    stop = ("--job", "ddp", "--steps", 12, "--stop-rank", ABSENT, "--stop-at", 8)
    overdue = ("--overdue", str(OVERDUE_S))
    stopping = (*overdue, "--stop-on-hang")
    jobs = {
        "absent": start(folder, "absent", ranks(N_RANKS, *stop), options=stopping),
        "proc": start(folder, "proc", ranks(N_RANKS, *stop), options=stopping, **denied),
        "signal": start(
            folder, "signal", ranks(N_RANKS, *stop),
            options=(*stopping, "--stack-signal", "USR2"), **denied,
        ),
        "shell": start(
            folder, "shell", ("sh", "-c", " ".join(ranks(N_RANKS, *stop)) + "; exit 3"),
            options=stopping,
        ),
        "stall": start(
            folder, "stall", ranks(N_RANKS, *stop, "--stop-seconds", STALL_S), options=overdue
        ),
    }  # fmt: skip
    return {name: ended(folder / name, job) for name, job in jobs.items()}


def start(folder, name, command, **how):
    return started(folder / name, *command, start_new_session=True, **how)


def ended(run, process):
    _, err = process.communicate(timeout=120)
    return Ended(run, process.returncode, err.decode())


def hang_verdict(run):
    (found,) = [v for v in report(run)["verdicts"] if v["rule"] == "hang"]
    return found


@pytest.mark.parametrize("name", ["absent", "proc", "signal", "shell"])
def test_the_absent_rank_is_named_and_the_job_is_stopped(name, hung):
    job = hung[name]
    verdict = hang_verdict(job.run)
    assert verdict["cause"] == Cause.RANK_NOT_ENTERED
    assert verdict["culprits"] == [ABSENT]
    assert verdict["victims"] == [0, 2]
    assert verdict["first_bad_op"]["op"] == "all_reduce"
    assert verdict["first_bad_op"]["comm_label"].startswith("GLOBAL ")
    assert job.code != 0
    assert f"[comminsight] Rank {ABSENT} " in job.err
    assert "stopping the job" in job.err
    assert not own_processes(job.run)


def own_processes(run):
    """Recorded processes of the run that still exist."""
    pids = [session.identity.pid for session in open_run(run).sessions]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("name", "source", "is_told"),
    [("absent", "py-spy", False), ("proc", "proc", True), ("signal", "faulthandler", True)],
)
def test_the_stack_by_the_best_rung_there_is(name, source, is_told, hung):
    run = hung[name].run
    (stack,) = [e for e in hang_verdict(run)["evidence"] if e["kind"] == "stack"]
    assert stack["global_rank"] == ABSENT
    assert stack["message"]["params"]["source"] == source
    assert (STUCK_IN in stack["text"]) == (source != "proc")
    text = verb("report", run).stdout.decode()
    assert ("ptrace_scope" in text) == is_told
    assert ("--stack-signal" in text) == is_told


def test_the_json_is_as_its_schema_says(hung):
    schema = json.loads((REPO / "docs" / "schema" / "run-report.json").read_text())
    for job in hung.values():
        assert violations(report(job.run), schema) == []


def test_the_report_reads_as_a_sentence_in_both_languages(hung):
    run = hung["absent"].run
    first = verb("report", run).stdout.decode().splitlines()[0]
    assert first.startswith(f"Rank {ABSENT} ")
    assert "all_reduce #" in first
    chinese = verb("report", run, "--lang", "zh").stdout.decode()
    assert f"Rank {ABSENT}" in chinese.splitlines()[0]
    assert STUCK_IN in chinese


def test_the_evidence_is_the_same_without_boxes_and_on_a_copy(hung, tmp_path):
    run = shutil.copytree(hung["absent"].run, tmp_path / "run")
    shutil.rmtree(run / "blackbox")
    before, after = hang_verdict(hung["absent"].run), hang_verdict(run)
    assert (after["cause"], after["culprits"]) == (before["cause"], before["culprits"])
    shutil.rmtree(run / "hangs")
    (run / "hangs").mkdir()
    blamed = [v["culprits"] for v in report(run)["verdicts"] if v["culprits"]]
    assert blamed in ([], [[ABSENT]])


def test_a_stall_that_ended_is_no_hang(hung):
    job = hung["stall"]
    assert job.code == 0
    assert f"[comminsight] Rank {ABSENT} " in job.err
    assert len(list((job.run / "hangs").glob("*.json"))) >= 1
    assert not [v for v in report(job.run)["verdicts"] if v["rule"] == "hang"]
    assert theirs(job.err.encode()) == b""


def are_stopped_between_ops(run, pids):
    """True once both stand still outside of any op; a signal may land inside of one."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(0.3)
    if all(not len(s.in_flight) for s in open_run(run).sessions if s.identity.pid in pids):
        return True
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    return False


def test_two_ranks_that_stand_still_are_both_absent(tmp_path):
    skip_without_real_jobs()
    run = tmp_path / "run"
    job = ranks(4, "--job", "ddp", "--steps", 100000, "--compute-ms", 5)
    process = started(run, *job, options=("--overdue", "2"), start_new_session=True)
    stopped = []
    try:
        until(lambda: len(open_run(run).step_rows()) > 5, poll_s=0.3)
        pids = {s.identity.global_rank: s.identity.pid for s in open_run(run).sessions}
        stopped = [pids[1], pids[2]]
        until(lambda: are_stopped_between_ops(run, stopped), poll_s=0.07)
        (path,) = until(lambda: list((run / "hangs").glob("*.json")))[:1]
        event = until(lambda: json.loads(path.read_text()))
        assert {stack["global_rank"] for stack in event["stacks"]} == {0, 1, 2, 3}
        verdict = hang_verdict(run)
        assert verdict["culprits"] == [1, 2]
        assert verdict["victims"] == [0, 3]
        assert report(run)["facts"]["end"] == "running"
        shutil.rmtree(run / "hangs")  # as where no launcher watches: the boxes tell as much
        unwatched = hang_verdict(run)
        assert (unwatched["culprits"], unwatched["victims"]) == ([1, 2], [0, 3])
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        process.terminate()
        process.communicate(timeout=60)
    assert report(run)["facts"]["end"] == "killed"
    assert not list(live_box_dir().glob(f"{pids[1]}-*.box"))
