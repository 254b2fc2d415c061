"""Which sessions of a folder a rebuild takes: those that a report takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.pipeline.executor import SerialExecutor
from comminsight.pipeline.layout import run_paths
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
