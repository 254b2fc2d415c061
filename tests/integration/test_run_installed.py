"""A site with a launcher of its own: the hook is installed, one variable is set, and what the job
leaves in its spool is a run."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.integration.launching import environment, report, verb
from tests.integration.recording import skip_without_real_jobs

N_OPS = 30
TRAIN = f"""
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range({N_OPS}): dist.all_reduce(torch.ones(1024))
dist.destroy_process_group()
"""

pytestmark = [pytest.mark.real]


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    """The Python of another environment that sees the packages of this one, but not ours."""
    skip_without_real_jobs()
    folder = tmp_path_factory.mktemp("trainer")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = str(folder / "bin" / "python")
    where = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
    theirs = Path(site.stdout.strip(), "packages_of_the_site.pth")
    theirs.write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def act(action, python, **more):
    done = verb("inject", action, "--python", python, **more)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_one_variable_is_enough_to_record(trainer, tmp_path):
    spool = tmp_path / "spool"
    told = act("install", trainer, COMMINSIGHT_SPOOL=str(spool))
    assert "export COMMINSIGHT_INJECT=1" in told
    assert f"export COMMINSIGHT_SPOOL={spool}" in told
    assert f"comminsight report {spool}" in told
    assert told.partition("\n")[2] in act("status", trainer, COMMINSIGHT_SPOOL=str(spool))
    (tmp_path / "train.py").write_text(TRAIN)
    launcher = (trainer, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    own = {k: v for k, v in environment().items() if k != "PYTHONPATH"}
    own |= {"COMMINSIGHT_INJECT": "1", "COMMINSIGHT_SPOOL": str(spool)}
    own |= {"COMMINSIGHT_BOX_DIR": str(tmp_path / "boxes")}
    for _ in range(2):
        subprocess.run([*launcher, "train.py"], env=own, cwd=tmp_path, check=True)
    made = report(spool)
    assert made["facts"]["ranks_seen"] == 2
    assert made["coverage"]["records_read"] == 2 * N_OPS
    assert [note["code"] for note in made["notes"]][:1] == ["note.other_runs"]
    assert report(tmp_path / "boxes")["coverage"]["records_read"] == 2 * N_OPS
    act("uninstall", trainer)
    assert "export" not in act("status", trainer)


def test_without_a_recorder_nothing_is_installed(trainer, tmp_path):
    done = verb("inject", "install", "--python", trainer, COMMINSIGHT_NATIVE_DIR=str(tmp_path))
    assert done.returncode == 3
    assert b"make native" in done.stderr
    assert "not installed" in act("status", trainer)
