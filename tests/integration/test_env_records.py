"""A launcher that only evaluates ``comminsight env`` leaves a run that ``report`` reads.

The host program that plays NCCL stands for the job: four processes, no wrapper, no agent.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import comminsight
from comminsight.launch.plugin import LIBRARY_NAME
from comminsight.model.ops import Op
from comminsight.model.records import is_ended_op
from comminsight.pipeline.native_folder import native_folder
from comminsight.run import open_run

CLI = (sys.executable, "-m", "comminsight.cli")
JOB = """
release {release}
ranks 4
all: all_reduce world count=1k x10
all: all_gather world count=1k x5
end finalize
"""
N_OPS = 15


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A user's environment without anything of ours in it, but for where the box is to lie."""
    if not all((native_folder() / name).exists() for name in (LIBRARY_NAME, "fake_nccl")):
        pytest.skip("library or fake_nccl are not built: make native")
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("COMMINSIGHT_", "NCCL_"))}
    (tmp_path / "boxes").mkdir(mode=0o700)
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(tmp_path / "boxes"))  # where we read, too
    return kept | {
        "PYTHONPATH": str(Path(comminsight.__file__).parents[1]),
        "COMMINSIGHT_BOX_DIR": str(tmp_path / "boxes"),
    }


def play(release, options, environment, folder):
    """Runs the job in a shell that evaluated ``comminsight env``; what the shell then answered."""
    (folder / "job").write_text(JOB.format(release=release))
    env = shlex.join([*CLI, "env", "--spool", str(folder / "a spool"), *options])
    job = shlex.join([str(native_folder() / "fake_nccl"), str(folder / "job"), "--quiet"])
    return subprocess.run(
        ["sh", "-c", f'eval "$({env})" && {job}'], env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("release", ["2.27", "2.28", "2.30", "2.32"])
def test_every_op_of_every_rank_is_there(release, environment, tmp_path):
    done = play(release, ["--no-inject", "--run-id", "one"], environment, tmp_path)
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "a spool")
    assert run.facts.run_id == "one"
    assert sorted(s.identity.global_rank for s in run.sessions) == [0, 1, 2, 3]
    for session in run.sessions:
        ended = session.records[is_ended_op(session.records)]
        assert sorted(ended["op"]) == [Op.ALL_REDUCE] * 10 + [Op.ALL_GATHER] * 5
        assert sorted(ended["op_seq"]) == list(range(1, N_OPS + 1))


def test_the_report_reads_the_spool(environment, tmp_path):
    assert play("2.31", ["--no-inject"], environment, tmp_path).returncode == 0
    done = subprocess.run(
        [*CLI, "report", "--json", str(tmp_path / "a spool")], env=environment, capture_output=True,
        check=True,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["coverage"]["ranks_seen"] == 4
    assert report["coverage"]["records_lost"] == 0


def test_a_mask_that_was_chosen_is_obeyed(environment, tmp_path):
    options = ["--no-inject", "--mask", "off"]
    assert play("2.30", options, environment, tmp_path).returncode == 0
    sessions = open_run(tmp_path / "a spool").sessions
    assert [int(is_ended_op(s.records).sum()) for s in sessions] == [0] * 4


def test_the_release_that_takes_no_path_gets_what_the_note_says(environment, tmp_path):
    """As the comment behind the variables tells: the name, and the folder for the loader."""
    by_path = play("2.27.3", ["--no-inject"], environment, tmp_path)
    assert by_path.returncode == 3  # did not load
    assert not (tmp_path / "a spool").exists()
    by_name = environment | {
        "NCCL_PROFILER_PLUGIN": "comminsight", "LD_LIBRARY_PATH": str(native_folder()),
        "COMMINSIGHT_SPOOL": str(tmp_path / "a spool"),
    }  # fmt: skip
    job = [str(native_folder() / "fake_nccl"), str(tmp_path / "job"), "--quiet"]
    subprocess.run(job, env=by_name, check=True, capture_output=True, timeout=60)
    assert len(open_run(tmp_path / "a spool").sessions) == 4
