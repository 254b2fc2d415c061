"""Which sessions of a folder a rebuild takes: those that a report takes; what it withholds too."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from comminsight.model.ops import Backend
from comminsight.pipeline.executor import SerialExecutor
from comminsight.pipeline.layout import run_paths
from comminsight.pipeline.rebuild_measures import measure_run
from comminsight.pipeline.rebuild_run import RunRebuilt, rebuild_run
from comminsight.run import open_run
from tests.builders.records import MS, allreduce, comm_row, comm_rows, identity, ops
from tests.builders.segment import segment_bytes, write_segment

OLD, NEW = 1_000, 5_000  # ms on the wall clock


def record_job(root: Path, world: int, begun_ms: int, *, run_id: str, n_held: int = 1) -> None:
    """One op of every rank in their only communicator 500 ms after the beginning; each process
    holds ``n_held`` ranks."""
    for rank in range(0, world, n_held):
        who = identity(
            rank, world_size=world, run_id=run_id, pid=begun_ms + rank,
            created_real_ns=begun_ms * MS, created_mono_ns=begun_ms * MS,
        )  # fmt: skip
        numbers = range(1, n_held + 1)
        rows = [comm_row(i, f"0-{world - 1}", me=rank + i - 1) for i in numbers]
        records = [allreduce(i, begun_ms + 500, comm_index=i) for i in numbers]
        data = segment_bytes(ops(*records), comm_rows(*rows), who)
        write_segment(root / "inspector_logs" / who.session_id, data)


def taken(root: Path) -> tuple[list[str], RunRebuilt]:
    """Ids of the sessions that a report takes, and the rebuild."""
    sessions = open_run(root, is_segments_only=True).sessions
    return [s.identity.session_id for s in sessions], rebuild_run(run_paths(root), SerialExecutor())


@pytest.mark.parametrize(
    ("run_id", "worlds", "n_taken"),
    [
        ("", (4, 2), 2),
        ("x", (4, 2), 2),  # another world: the name was given twice
        ("", (2, 2), 2),
        ("x", (2, 2), 2),  # restarted: the newest lives
        ("x", (2, 4), 4),
    ],
)
def test_of_several_launches_the_last_is_rebuilt_as_a_report_takes_it(
    tmp_path: Path, run_id: str, worlds: tuple[int, int], n_taken: int
) -> None:
    for world, begun_ms in zip(worlds, (OLD, NEW), strict=True):
        record_job(tmp_path, world, begun_ms, run_id=run_id)
    reported, found = taken(tmp_path)
    assert len(reported) == n_taken
    assert [one.identity.session_id for one in found.sessions] == reported
    assert {path.name.partition(".")[0] for path in (tmp_path / "steps").iterdir()} == {*reported}


def test_an_earlier_launch_that_held_several_ranks_does_not_ask_for_the_whole_run(
    tmp_path: Path,
) -> None:
    record_job(tmp_path, 4, OLD, run_id="x", n_held=2)
    record_job(tmp_path, 2, NEW, run_id="x")
    reported, found = taken(tmp_path)
    assert [one.identity.session_id for one in found.sessions] == reported
    assert not found.is_whole_needed


def test_jobs_that_lived_side_by_side_are_not_told_apart(tmp_path: Path) -> None:
    record_job(tmp_path, 4, OLD, run_id="x")
    record_job(tmp_path, 2, OLD + 400, run_id="x")
    reported, found = taken(tmp_path)
    assert len(reported) == 4
    assert [one.identity.session_id for one in found.sessions] == reported


def test_measures_are_withheld_where_the_numbers_of_the_ranks_disagree(tmp_path: Path) -> None:
    numbers = ([0, 1, 2], [0, 2])  # what NCCL says; nobody was told of one call of rank 1
    for rank, func_seqs in enumerate(numbers):
        who = identity(rank, world_size=2)
        row = comm_row(1, "0-1", me=rank, backend=Backend.NCCL)
        records = [
            allreduce(i, 1_000 + i, func_seq=n, n_channels=1) for i, n in enumerate(func_seqs, 1)
        ]
        data = segment_bytes(ops(*records), row, who)
        write_segment(tmp_path / "inspector_logs" / who.session_id, data)
    reported, found = taken(tmp_path)
    assert [one.unseen_calls for one in found.sessions] == [{}, {1: 1}]
    sessions = open_run(tmp_path, is_segments_only=True).sessions
    assert [s.unseen_calls for s in sessions] == [{}, {1: 1}]
    measured = measure_run(found, tmp_path / "measures", SerialExecutor())
    assert (len(reported), measured.tables, measured.problems) == (2, (), ())
    assert measured.withheld is not None
    assert measured.withheld.params["ranks"] == [1]
    assert not (tmp_path / "measures").exists()


@pytest.mark.parametrize("end", ["unsealed", "gap"])
def test_of_records_that_are_not_whole_no_call_is_counted_as_unseen(
    tmp_path: Path, end: str
) -> None:
    who = identity(0, world_size=2)
    row = comm_row(1, "0-1", backend=Backend.NCCL)
    seqs = [1, 3] if end == "gap" else [1, 2]
    records = [
        allreduce(seq, 1_000 + seq, func_seq=n, n_channels=1, op_seq=i)
        for i, (seq, n) in enumerate(zip(seqs, (0, 4), strict=True), 1)
    ]
    data = segment_bytes(ops(*records), row, who, sealed=end == "gap")
    write_segment(tmp_path / "inspector_logs" / who.session_id, data, sealed=end == "gap")
    (own,) = rebuild_run(run_paths(tmp_path), SerialExecutor()).sessions
    assert (own.n_records, own.unseen_calls) == (2, {})


SLOW = """
import sys, time
import subprocess
import sys
import time
from pathlib import Path
from comminsight.pipeline.executor import SerialExecutor
from comminsight.pipeline.layout import run_paths
from comminsight.pipeline.rebuild_run import rebuild_run
from comminsight.pipeline.session_steps import SessionStepper

root = Path(sys.argv[1])
finish = SessionStepper.finish

def waiting(self):
    (root / "begun").touch()
    while not (root / "go").exists():
        time.sleep(0.01)
    return finish(self)

SessionStepper.finish = waiting
print(rebuild_run(run_paths(root), SerialExecutor()).problems)
"""


def test_two_rebuilds_at_once_into_one_folder_leave_each_other_alone(tmp_path: Path) -> None:
    record_job(tmp_path, 2, OLD, run_id="x")
    steps = tmp_path / "steps"
    slow = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    while not (tmp_path / "begun").exists():
        assert slow.poll() is None
        time.sleep(0.01)
    dead = steps / ".part-node9-77"  # of a worker that was killed
    dead.mkdir()
    (dead / "x.jsonl").write_text("half a st")
    rebuild_run(run_paths(tmp_path), SerialExecutor())
    expected = {path.name: path.read_bytes() for path in steps.iterdir() if path.is_file()}
    (held,) = steps.glob(".part-*")
    assert held.name.endswith(f"-{slow.pid}")
    (tmp_path / "go").touch()
    said, _ = slow.communicate(timeout=60)
    assert (slow.returncode, said) == (0, "()\n")
    assert {path.name: path.read_bytes() for path in steps.iterdir()} == expected
    assert len(expected) == 4


def test_of_a_rebuild_that_was_killed_the_next_one_clears_up(tmp_path: Path) -> None:
    record_job(tmp_path, 2, OLD, run_id="x")
    killed = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tmp_path)], stdout=subprocess.DEVNULL
    )
    while not (tmp_path / "begun").exists():
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    killed.wait(60)
    assert list((tmp_path / "steps").glob(".part-*"))
    rebuild_run(run_paths(tmp_path), SerialExecutor())
    assert not list((tmp_path / "steps").glob(".part-*"))
