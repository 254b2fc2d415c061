"""A benchmark that is interrupted or killed: what its files say, and that no process is left."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from comminsight.errors import ExitCode, InputError
from comminsight.model.bench import Decision
from comminsight.probe.bench_launch import read_record
from tests.builders.bench_processes import hold, processes, wait_until

pytestmark = pytest.mark.real
HAS_MPI = bool(shutil.which("mpirun") and importlib.util.find_spec("mpi4py"))


@pytest.fixture(autouse=True)
def _held(monkeypatch: pytest.MonkeyPatch) -> None:
    hold(monkeypatch)


def skip_without_mpi(backend: str) -> None:
    if backend == "mpi" and not HAS_MPI:
        pytest.skip("needs Open MPI (openmpi-bin) and mpi4py")


def started(backend: str, folder: Path, *other: str) -> subprocess.Popen[bytes]:
    """A benchmark that would not end by itself, after some rounds of both launches."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    job = subprocess.Popen(
        [sys.executable, "-m", "comminsight.cli", "bench", "--backend", backend, "--run", "--out",
         str(folder), "--algorithms", "Auto,Ring", "--elements", "64", "--repeats", "10000000",
         "--warmup", "0", *other],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env=os.environ | {"TMPDIR": str(scratch)},
    )  # fmt: skip
    wait_until(lambda: n_measuring(scratch) == 4 or job.poll() is not None)
    assert job.poll() is None, job.communicate()
    return job


def n_measuring(scratch: Path) -> int:
    """Ranks that have written the times of a round or more."""
    files = scratch.glob("comminsight-bench-*/rank*.jsonl")
    return sum(path.read_bytes().count(b"\n") > 1 for path in files)


@pytest.mark.parametrize(
    ("backend", "number"),
    [("gloo", signal.SIGINT), ("gloo", signal.SIGTERM), ("mpi", signal.SIGINT),
     ("mpi", signal.SIGHUP)],
)  # fmt: skip
def test_an_interrupt_is_recorded_and_leaves_no_process(
    backend: str, number: signal.Signals, tmp_path: Path
) -> None:
    skip_without_mpi(backend)
    older = {tmp_path / f"default-{name}-001.json": name.encode() for name in ("Auto", "Ring")}
    for path, text in older.items():
        path.write_bytes(text)
    job = started(backend, tmp_path)
    os.killpg(job.pid, number)  # as a terminal does
    time.sleep(0.2)
    os.killpg(job.pid, number)  # and once more, for impatience
    out, errors = job.communicate(timeout=60)
    assert (job.returncode, out, errors) == (ExitCode.INTERRUPTED, b"", b"")
    assert processes() == []
    assert {path: path.read_bytes() for path in older} == older
    for name in ("Auto", "Ring"):
        record = read_record(tmp_path / f"default-{name}-002.json")
        assert (record.failure, record.decision) == ("interrupted", Decision.DISCARD)
        assert record.metrics.rows
        assert (tmp_path / record.artifacts.nccl_log).exists()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_ranks_that_lose_the_benchmark_end_by_themselves(backend: str, tmp_path: Path) -> None:
    skip_without_mpi(backend)
    job = started(backend, tmp_path)
    job.kill()
    job.communicate(timeout=60)
    wait_until(lambda: processes() == [])
    shutil.rmtree(tmp_path / "scratch")  # nobody was left to remove what is in it
    with pytest.raises(InputError, match="not ended yet, or killed"):
        read_record(tmp_path / "default-Auto-001.json")
    again = started(backend, tmp_path)
    os.kill(again.pid, signal.SIGINT)
    again.communicate(timeout=60)
    assert (tmp_path / "default-Auto-001.json").read_bytes() == b""
    assert read_record(tmp_path / "default-Auto-002.json").failure == "interrupted"
