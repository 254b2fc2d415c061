"""Rows of many sessions to communicators of the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from comminsight.model.event import COMM_FLAG_MEMBERS_TRUNCATED
from comminsight.model.ops import CommRole
from comminsight.semantics.communicators import join_communicators
from tests.builders import comm_row, comm_rows, identity


def session(rank: int, *rows: np.ndarray, world_size: int = 4) -> Any:
    return identity(rank, world_size), comm_rows(*rows)


def unlisted(index: int, rank: int, comm_rank: int, size: int, **fields: Any) -> np.ndarray:
    given = {"comm_rank": comm_rank, "comm_size": size, "comm_hash": 77} | fields
    return changed(comm_row(index, [rank], rank, **given), b"")


def changed(row: np.ndarray, members: bytes) -> np.ndarray:
    row["members"] = members
    return row


def test_rows_of_one_hash_join_and_index_by_session() -> None:
    world = {"comm_hash": 1, "desc": b"default_pg"}
    first = session(0, comm_row(1, "0-3", 0, **world), comm_row(2, "0,2", 0, desc=b"mesh_dp"))
    third = session(2, comm_row(1, "0,2", 2, desc=b"mesh_dp"), comm_row(2, "0-3", 2, **world))
    communicators, ids = join_communicators([first, third])
    assert [c.members for c in communicators] == [(0, 1, 2, 3), (0, 2)]
    assert [c.role for c in communicators] == [CommRole.GLOBAL, CommRole.DP]
    assert ids[first[0].session_id].tolist() == [-1, 0, 1]
    assert ids[third[0].session_id].tolist() == [-1, 1, 0]
    assert ids[first[0].session_id].dtype == np.int32


def test_without_lists_the_sessions_name_themselves() -> None:
    communicators, _ = join_communicators(
        [session(3, unlisted(1, 3, 0, 3)), session(1, unlisted(1, 1, 2, 3))]
    )
    assert [c.members for c in communicators] == [(3, -1, 1)]


def test_contradicting_claims_leave_the_member_unknown() -> None:
    communicators, _ = join_communicators(
        [session(0, unlisted(1, 0, 0, 2)), session(1, unlisted(1, 1, 0, 2))]
    )
    assert [c.members for c in communicators] == [(-1, -1)]
    overlapping = [
        session(0, comm_row(1, [0, 1], 0, comm_hash=5)),
        session(2, comm_row(1, [0, 2], 2, comm_hash=5)),
    ]
    assert [c.members for c in join_communicators(overlapping)[0]] == [(0, -1)]


def test_equal_hashes_of_disjoint_groups_stay_apart() -> None:
    communicators, ids = join_communicators(
        [
            session(0, comm_row(1, [0, 1], 0, comm_hash=5)),
            session(2, comm_row(1, [2, 3], 2, comm_hash=5)),
            session(3, comm_row(1, [2, 3], 3, comm_hash=5)),
        ]
    )
    assert [c.members for c in communicators] == [(0, 1), (2, 3)]
    assert [int(array[1]) for array in ids.values()] == [0, 1, 1]


def test_ordinals_separate_generations_and_unknown_hashes_never_join() -> None:
    rows = [comm_row(1, "0-1", 0, ordinal=0), comm_row(2, "0-1", 0, ordinal=1)]
    assert len(join_communicators([session(0, *rows)])[0]) == 2
    nameless = [
        session(0, unlisted(1, 0, 0, 2, comm_hash=0)),
        session(1, unlisted(1, 1, 1, 2, comm_hash=0)),
    ]
    assert len(join_communicators(nameless)[0]) == 2


def test_unusable_lists_and_rows_are_passed_over() -> None:
    cut_short = comm_row(1, "0-3", 0, flags=COMM_FLAG_MEMBERS_TRUNCATED, comm_hash=9)
    corrupt = changed(comm_row(2, "0-3", 0, comm_hash=8), b"0-x")
    no_index = comm_row(0, "0-3", 0)
    alone = comm_row(3, [0], 0, comm_hash=7)
    communicators, _ = join_communicators([session(0, cut_short, corrupt, no_index, alone)])
    assert [c.members for c in communicators] == [(0, -1, -1, -1), (0, -1, -1, -1), (0,)]


def test_no_session_gives_nothing() -> None:
    assert join_communicators([]) == ((), {})
