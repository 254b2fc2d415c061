"""``comminsight bench --backend mpi`` for real: Open MPI's ranks, with algorithms asked for."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from comminsight.cli.bench import main
from comminsight.errors import ExitCode, UsageError
from comminsight.model.bench import BenchPlan, BenchRecord, Decision, EvidenceLevel
from comminsight.model.bench_algorithms import AUTO, OPENMPI
from comminsight.probe.bench_commands import environment
from comminsight.probe.bench_launch import measure, read_record
from tests.builders.bench_processes import have_begun, hold, pid_of, processes, wait_until

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None,
        reason="needs Open MPI (openmpi-bin) and mpi4py",
    ),
]
SHORT = BenchPlan(backend="mpi", elements=(4096,), warmup=0, repeats=2)


@pytest.fixture(autouse=True)
def _held(monkeypatch: pytest.MonkeyPatch) -> None:
    hold(monkeypatch)


def measured(folder: Path, **other: object) -> list[BenchRecord]:
    plan = msgspec.structs.replace(SHORT, **other)
    return [read_record(path) for path in measure(plan, folder, timeout_s=100)]


def told(record: BenchRecord) -> set[tuple[str, str]]:
    assert not isinstance(record.algorithm_observed, str), record
    return {(one.op, one.algo) for one in record.algorithm_observed}


@pytest.mark.slow
def test_every_algorithm_that_is_asked_for_runs(tmp_path: Path) -> None:
    # long enough that no segmented ring falls back
    records = measured(tmp_path, algorithms=tuple(OPENMPI), elements=(1 << 20,))
    for record in records:
        functions = {
            op: function for op, (_, function) in OPENMPI[record.algorithm_requested].items()
        }
        assert record.decision is Decision.USE_ALGORITHM, record
        assert record.evidence_level is EvidenceLevel.CONFIRMED
        main_ops = {pair for pair in told(record) if "/" not in pair[0]}
        assert main_ops <= {*functions.items()}
        assert main_ops


def test_what_auto_takes_is_told_for_every_op(tmp_path: Path) -> None:
    (record,) = measured(tmp_path, algorithms=(AUTO,))
    ops = {op for op, _ in told(record)}
    assert ops >= {"allreduce", "reduce_scatter", "allgather", "bcast", "alltoall"}
    assert record.decision is Decision.USE_ALGORITHM
    assert record.rs_ag_equals_all_reduce is True
    assert record.environment_profile["mpi"].startswith("Open MPI")
    assert "comminsight: first calls of allreduce" in (
        (tmp_path / record.artifacts.nccl_log).read_text()
    )


@pytest.mark.parametrize(
    ("n_ranks", "algorithm", "collective", "elements", "seen"),
    [
        (2, "SegmentedRing", "all_reduce", 64,  # less than a segment for each rank
         {("allreduce", "ring_segmented"), ("allreduce", "ring")}),
        (3, "RecursiveDoubling", "all_gather", 64,  # ranks are no power of two
         {("allgather", "recursivedoubling"), ("allgather", "bruck")}),
    ],
)  # fmt: skip
def test_a_library_that_falls_back_is_found_out(
    n_ranks: int, algorithm: str, collective: str, elements: int,
    seen: set[tuple[str, str]], tmp_path: Path,
) -> None:  # fmt: skip
    (record,) = measured(
        tmp_path, n_ranks=n_ranks, algorithms=(algorithm,), collectives=(collective,),
        elements=(elements,), repeats=1,
    )  # fmt: skip
    assert told(record) == seen
    assert record.decision is Decision.NOT_HONOURED
    assert record.failure == ""


def test_a_component_that_takes_over_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_MCA_coll_sm_priority", "100")
    (record,) = measured(tmp_path, algorithms=("Ring",))
    assert ("allreduce", "coll/sm") in told(record)
    assert ("allgather", "ring") in told(record)  # sm has none of its own
    assert record.decision is Decision.NOT_HONOURED


def test_without_a_binding_nothing_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The component ``basic`` reaches the functions through a table that is made when it loads."""
    monkeypatch.setenv("OMPI_MCA_coll", "^tuned")
    (record,) = measured(tmp_path, algorithms=("Ring",), collectives=("all_reduce",))
    assert record.algorithm_observed == "unconfirmed"
    assert (record.decision, record.evidence_level) == (
        Decision.USE_TIMES, EvidenceLevel.MEASURED
    )  # fmt: skip


def test_a_killed_rank_is_a_recorded_failure(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(SHORT, algorithms=("Ring",), repeats=10_000_000)
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(measure, plan, tmp_path, timeout_s=100)
        wait_until(have_begun())
        time.sleep(2)
        os.kill(pid_of(1), signal.SIGKILL)
        (record,) = map(read_record, going.result())
    assert record.failure == "the launcher ended with 137, a rank with signal 9"
    assert (record.decision, record.evidence_level) == (
        Decision.DISCARD, EvidenceLevel.PARTIAL
    )  # fmt: skip
    assert record.metrics.rows  # what was measured before
    assert processes() == []


def test_the_verb_prints_and_draws(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "new.png"
    words = ["--backend", "mpi", "--run", "--elements", "64,4Ki", "--warmup", "0", "--repeats", "2",
             "--out", str(tmp_path), "--plot", str(picture)]  # fmt: skip
    assert main(words) == ExitCode.OK
    out = capfd.readouterr().out
    for algorithm in ("Auto", "Ring", "Tree"):
        assert f"{algorithm} on mpi, 2 ranks, float32" in out
    assert "functions of the library that the ranks called: allgather ring" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_another_mpirun_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "bin" / "mpirun"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho HYDRA build details\n")
    other.chmod(0o700)
    monkeypatch.setenv("PATH", str(other.parent))
    with pytest.raises(UsageError, match="not Open MPI's: HYDRA"):
        measured(tmp_path / "new")
    other.unlink()
    with pytest.raises(UsageError, match="no mpirun on PATH"):
        measured(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("algorithm", "messages"),
    [
        ("Ring", {1: (60, 245760)}),  # 2 (n - 1) quarters to the right
        ("RecursiveDoubling", {1: (10, 163840), 2: (10, 163840)}),  # log2 n times all of it
        (
            "Rabenseifner",
            {1: (20, 163840), 2: (20, 81920)},
        ),  # halves, then quarters, there and back
    ],
)
def test_messages_on_the_wire_are_those_of_the_algorithm(
    algorithm: str, messages: dict[int, tuple[int, int]], tmp_path: Path
) -> None:
    """Another witness than the function's name: what rank 0 of 4 sends in 10 calls of 16 KiB."""
    program = (
        "import numpy as np; from mpi4py import MPI; x = np.ones(4096, 'f4'); y = x.copy()\n"
        "for _ in range(10): MPI.COMM_WORLD.Allreduce(x, y)"
    )
    plan = msgspec.structs.replace(SHORT, algorithms=(algorithm,))
    watch = {"enable": "2", "enable_output": "3", "filename": str(tmp_path / "sent")}
    asked = [word for key, value in watch.items() for word in
             ("--mca", f"pml_monitoring_{key}", value)]  # fmt: skip
    subprocess.run(
        ["mpirun", "-n", "4", "--oversubscribe", *asked, sys.executable, "-c", program],
        env=environment(os.environ, plan), check=True, timeout=100, capture_output=True,
    )  # fmt: skip
    sent = {}
    for line in next(tmp_path.glob("sent.0.*")).read_text().splitlines():
        if line.startswith("I\t0\t"):
            _, _, peer, n_bytes, n_messages, *_ = line.split("\t")
            sent[int(peer)] = (int(n_messages.split()[0]), int(n_bytes.split()[0]))
    assert sent == messages
