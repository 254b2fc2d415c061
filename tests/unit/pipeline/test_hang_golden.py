"""Hang evidence in files of every version: it reads, and today's rules say the same of it.

``current.json`` is what ``event()`` writes; ``older.json`` is the same as version 1.0 wrote it,
which stated neither its communicators nor how whole its records were.
"""

import shutil
from pathlib import Path

import msgspec
import pytest

from comminsight.diagnosis.hang import judge_hang
from comminsight.model.hang import (
    HangEvent,
    InFlightOp,
    Liveness,
    Progress,
    RankState,
    Stack,
    StackSource,
)
from comminsight.model.ops import DType, Op, RecordKind
from comminsight.model.topology import CommRole, Communicator
from comminsight.model.verdict import Cause, Confidence
from comminsight.pipeline.hang_event import renumbered
from comminsight.pipeline.hang_store import read_hangs, write_hang
from comminsight.pipeline.layout import RunPaths

GOLDEN = Path(__file__).parents[2] / "golden" / "hang-v1"
S = 1_000_000_000


def group(comm_id, members, **fields):
    given = {"comm_hash": 77, "ordinal": 0, "role": CommRole.DP, "is_role_inferred": False}
    return Communicator(comm_id=comm_id, members=members, desc="dp", **(given | fields))


WORLD = (group(0, (0, 1, 2, 3)),)


def event():
    """Ranks 0 to 2 wait in the ninth all_reduce for rank 3, which has done eight."""
    waiting = tuple(
        InFlightOp(
            global_rank=rank, comm_id=0, kind=RecordKind.COLLECTIVE, op=Op.ALL_REDUCE, op_seq=9,
            match_seq=9, start_ns=60 * S, age_ns=40 * S, size_bytes=4096, count=1024,
            dtype=DType.FLOAT32, owner_tid=7, is_overdue=True,
        )
        for rank in (0, 1, 2)
    )  # fmt: skip
    progress = tuple(
        Progress(
            global_rank=rank, comm_id=0, last_entered=8 + (rank < 3), last_done=8,
            last_end_ns=59 * S, is_current=True,
        )
        for rank in range(4)
    )  # fmt: skip
    states = tuple(
        RankState(
            global_rank=rank, liveness=Liveness.ALIVE, host="node0", pid=100 + rank,
            last_event_ns=60 * S, is_whole=rank != 3,
        )
        for rank in range(4)
    )  # fmt: skip
    text = "load_batch (data.py:41)"
    return HangEvent(
        observed_mono_ns=100 * S, observed_real_ns=1_700_000_000 * S, overdue_limit_ns=30 * S,
        world_size=4, ranks=states, in_flight=waiting, progress=progress,
        stacks=(Stack(global_rank=3, pid=103, source=StackSource.PY_SPY, text=text),),
        communicators=WORLD,
    )  # fmt: skip


def stored(tmp_path, name):
    paths = RunPaths(tmp_path)
    paths.create()
    shutil.copy(GOLDEN / name, paths.hangs / "hang-0001-100.json")
    (found,), unreadable = read_hangs(paths)
    assert unreadable == []
    return found


@pytest.mark.parametrize("name", ["current.json", "older.json"])
def test_a_stored_event_is_judged_as_when_it_was_written(name, tmp_path):
    found = renumbered(stored(tmp_path, name), WORLD)
    for judged in (judge_hang(found, WORLD), judge_hang(event(), WORLD)):
        assert (judged.cause, judged.culprits) == (Cause.RANK_NOT_ENTERED, (3,))
        assert (judged.victims, judged.confidence) == ((0, 1, 2), Confidence.HIGH)
        assert [e.text for e in judged.evidence if e.kind == "stack"] == ["load_batch (data.py:41)"]
        assert judged.first_bad_op.match_seq == 9


def test_the_file_says_what_was_written(tmp_path):
    assert stored(tmp_path, "current.json") == event()
    paths = RunPaths(tmp_path / "again")
    paths.create()
    write_hang(paths, event())
    assert read_hangs(paths) == ([event()], [])


def test_a_file_of_a_later_version_reads(tmp_path):
    paths = RunPaths(tmp_path)
    paths.create()
    later = msgspec.to_builtins(event()) | {"nodes": 2}
    (paths.hangs / "hang-0001-1.json").write_bytes(msgspec.json.encode(later))
    assert read_hangs(paths) == ([event()], [])


def test_an_event_keeps_its_communicator_when_the_run_makes_more():
    """While it hung there was one group; in the end another of rank 0 comes first."""
    later = (group(0, (0, 2), comm_hash=5), group(1, (0, 1, 2, 3)))
    judged = judge_hang(renumbered(event(), later), later)
    assert (judged.cause, judged.culprits, judged.comm_id) == (Cause.RANK_NOT_ENTERED, (3,), 1)
    others = (group(0, (4, 5, 6, 7)), group(1, (0, 1, 2, 3), ordinal=1))
    lost = judge_hang(renumbered(event(), others), others)
    assert (lost.cause, lost.culprits) == (Cause.NO_VERDICT, ())
    assert "missing.communicator" in [said.code for said in lost.missing]
