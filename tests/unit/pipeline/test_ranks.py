"""Ranks that only the communicators tell, and processes that hold several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from comminsight.capture.session import SessionData
from comminsight.model.ops import Backend
from comminsight.model.topology import UNKNOWN_RANK
from comminsight.pipeline.ranks import with_ranks
from comminsight.pipeline.trace import joined_communicators
from tests.builders import allreduce, comm_row, comm_rows, identity, net_summary, notice, ops
from tests.unit.pipeline.test_ends import session

WORLD, OTHER, SPLIT = 0xAAAA, 0xBBBB, 0xCCCC


def row(index: int, comm_hash: int, rank: int, size: int, **fields: int) -> np.ndarray:
    """A row as NCCL's plugin writes it: no members, no name."""
    made = comm_row(index, "0", comm_hash=comm_hash, backend=Backend.NCCL, **fields)
    made["comm_rank"], made["comm_size"], made["members"] = rank, size, b""
    return made


def process(pid: int, *rows: np.ndarray, rank: int = UNKNOWN_RANK) -> SessionData:
    who = identity(rank, world_size=-1, pid=pid)
    return replace(session(0), identity=who, comms=comm_rows(*rows))


def ranks(*sessions: SessionData) -> list[int]:
    return [s.identity.global_rank for s in with_ranks(sessions).sessions]


def test_the_place_in_the_worlds_communicator_is_the_rank() -> None:
    found = with_ranks(
        [
            process(7, row(1, WORLD, 2, 4), row(2, SPLIT, 0, 2)),
            process(8, row(1, WORLD, 0, 4), row(2, SPLIT, 1, 2)),
        ]
    )
    assert [s.identity.global_rank for s in found.sessions] == [2, 0]
    assert [s.identity.world_size for s in found.sessions] == [4, 4]
    assert [note.code for note in found.notes] == ["note.ranks_inferred"]
    communicators, _ = joined_communicators(found.sessions)
    assert [c.members for c in communicators] == [(0, -1, 2, -1), (2, 0)]


@pytest.mark.parametrize(
    "sessions",
    [
        # two jobs of one rank each, or one whose world is not known
        [process(7, row(1, WORLD, 0, 2)), process(8, row(1, OTHER, 1, 2))],
        # one of them is not in it
        [process(7, row(1, WORLD, 0, 4)), process(8, row(1, SPLIT, 1, 2))],
        # both claim one place: two lives of one rank
        [process(7, row(1, WORLD, 0, 2)), process(8, row(1, WORLD, 0, 2))],
        [process(7)],
    ],
)
def test_without_a_world_that_all_share_nobody_has_a_rank(sessions: list[SessionData]) -> None:
    assert set(ranks(*sessions)) == {UNKNOWN_RANK}
    assert with_ranks(sessions).notes == ()


@pytest.mark.parametrize(("known", "expected"), [(1, [0, 1]), (5, [UNKNOWN_RANK, 5])])
def test_known_ranks_must_agree(known: int, expected: list[int]) -> None:
    others = process(8, row(1, WORLD, 1, 2), rank=known)
    assert ranks(process(7, row(1, WORLD, 0, 2)), others) == expected


def threads(*rows: np.ndarray) -> SessionData:
    """One process of two ranks, an all-reduce of each, a summary and a notice."""
    first, second = allreduce(1, 1.0, comm=1, op_seq=1), allreduce(2, 1.0, comm=2, op_seq=1)
    records = ops(first, second, net_summary(second, 3), notice(4, 2.0))
    return replace(process(7, *rows), records=records, losses=np.ones((4, 16), np.int64))


def test_a_process_of_two_ranks_is_taken_apart() -> None:
    found = with_ranks([threads(row(1, WORLD, 0, 2), row(2, WORLD, 1, 2))])
    one, two = found.sessions
    assert [s.identity.global_rank for s in (one, two)] == [0, 1]
    assert one.identity.session_id != two.identity.session_id
    assert one.records["comm_index"].tolist() == [1, 0]
    assert two.records["comm_index"].tolist() == [2, 2, 0]
    assert two.records["seq"].tolist() == [1, 2, 3]  # nothing of it is missing
    assert [np.flatnonzero(s.losses[:, 0]).tolist() for s in (one, two)] == [[0, 1], [0, 2]]
    communicators, _ = joined_communicators(found.sessions)
    assert [c.members for c in communicators] == [(0, 1)]


def test_numbers_stay_where_records_are_missing() -> None:
    lossy = replace(threads(row(1, WORLD, 0, 2), row(2, WORLD, 1, 2)), complete_from_seq=2)
    assert with_ranks([lossy]).sessions[1].records["seq"].tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("devices", "kept", "n_left_out"),
    [((1, 2, 2), [(0, [1]), (1, [2, 3])], 0), ((0, 0, 0), [(0, [1]), (1, [2])], 1)],
)
def test_another_communicator_belongs_to_the_rank_on_its_device(
    devices: tuple[int, ...], kept: list[tuple[int, list[int]]], n_left_out: int
) -> None:
    rows = [(1, WORLD, 0, 2), (2, WORLD, 1, 2), (3, OTHER, 0, 1)]
    made = [row(*one, device_number=device) for one, device in zip(rows, devices, strict=True)]
    found = with_ranks([threads(*made)])
    assert [
        (s.identity.global_rank, s.comms["comm_index"].tolist()) for s in found.sessions
    ] == kept
    left_out = [n.params["n"] for n in found.notes if n.code == "note.unassigned_communicators"]
    assert left_out == [n_left_out] * (n_left_out > 0)


def test_a_session_that_was_not_taken_apart_speaks_for_no_place() -> None:
    """The live view reads processes as they are: two places are never merged into one rank."""
    whole = threads(row(1, WORLD, 0, 3), row(2, WORLD, 1, 3), row(3, SPLIT, 0, 2))
    other = process(8, row(1, WORLD, 2, 3), rank=2)
    communicators, comm_ids = joined_communicators([whole, other])
    assert comm_ids[whole.identity.session_id].tolist() == [-1, -1, -1, 0]
    assert [c.members for c in communicators] == [(-1, -1), (-1, -1, 2)]
