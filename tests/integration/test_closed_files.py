"""Files and folders that the reader has no right to: the reason is said, what is open is judged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.flight_recorder import parallel_job, write_dumps

ROOT = Path(__file__).resolve().parents[2]
RIGHTS = "-dac_override,-dac_read_search"


def diagnosed(path: Path) -> subprocess.CompletedProcess[str]:
    """The verb run by somebody whom rights bind, also where the tests run as root."""
    command = [sys.executable, "-m", "comminsight.cli", "diagnose", str(path), "--json"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root reads every file, and setpriv is not there to give that right up")
        command = ["setpriv", f"--bounding-set={RIGHTS}", f"--inh-caps={RIGHTS}", *command]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip


@pytest.mark.parametrize("mode", [0o000, 0o200])
def test_one_closed_file_is_an_error_that_says_why(mode: int, tmp_path: Path) -> None:
    path = write_dumps(tmp_path, parallel_job(2, 1, 1).play())[0]
    path.chmod(mode)
    done = diagnosed(path)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{path}: cannot be read: Permission denied" in done.stderr
    assert "next: " in done.stderr


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o111])
def test_a_closed_folder_is_an_error_that_says_why(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    write_dumps(folder, parallel_job(2, 1, 1).play())
    folder.chmod(mode)
    done = diagnosed(folder)
    folder.chmod(0o755)
    assert (done.returncode, done.stdout) == (3, "")
    assert str(folder) in done.stderr
    assert "Traceback" not in done.stderr
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_what_is_closed_among_others_is_named(mode: int, tmp_path: Path) -> None:
    job = parallel_job(2, 2, 1)
    job.host_stops[1] = 20
    write_dumps(tmp_path, job.play())
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "job.log").write_text("step 1\n")
    inner.chmod(mode)
    done = diagnosed(tmp_path)
    inner.chmod(0o755)
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)["verdicts"][0]
    assert verdict["culprits"] == [1]
    assert str(inner) in str(verdict["missing"])
