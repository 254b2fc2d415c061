"""Communicators of an answer of RAS and of the run meet on their hash, or not at all."""

from __future__ import annotations

import pytest

from comminsight.analysis.ras import join_ras
from comminsight.format.ras import parse_ras
from comminsight.model.ras import RasAnswer, RasProcess
from comminsight.model.topology import Communicator
from tests.builders.ras import TEXT_DEAD, ras_comm, ras_json, ras_rank


def comm(comm_id: int, comm_hash: int, members: tuple[int, ...], ordinal: int = 0) -> Communicator:
    return Communicator(comm_id=comm_id, comm_hash=comm_hash, ordinal=ordinal, members=members)


def answer(*sizes_of_hash: tuple[int, int]) -> RasAnswer:
    comms = [ras_comm(h, [ras_rank(rank) for rank in range(size)]) for h, size in sizes_of_hash]
    return parse_ras(ras_json(*comms))


@pytest.mark.parametrize(
    ("ours", "theirs", "joined", "n_foreign"),
    [
        ([(0xAB, 2)], [(0xAB, 2)], [0], 0),
        ([(0xAB, 2)], [(0xAB, 3)], [], 0),
        ([(0xAB, 2)], [(0xCD, 2)], [], 1),
        ([(0, 2)], [(0, 2)], [], 0),
        ([(0xAB, 2), (0xAB, 2)], [(0xAB, 2)], [], 0),  # which of the two?
        ([(0xAB, 2), (0xAB, 3)], [(0xAB, 3)], [1], 0),
        ([(0xAB, 2)], [(0xAB, 2), (0xAB, 2)], [], 0),
        ([(0xAB, 2), (0xCD, 4)], [(0xCD, 4), (0xEF, 1), (0xAB, 2)], [0, 1], 1),
    ],
)
def test_only_what_is_one_on_both_sides_is_joined(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]], joined: list[int], n_foreign: int
) -> None:
    own = [
        comm(i, comm_hash, tuple(range(size)), ordinal=i)
        for i, (comm_hash, size) in enumerate(ours)
    ]
    join = join_ras(answer(*theirs), own)
    assert [match.communicator.comm_id for match in join.matches] == joined
    assert join.n_foreign == n_foreign


def test_a_member_that_the_records_do_not_name_is_known_by_its_process_elsewhere() -> None:
    world = comm(0, 0xAB, (10, 11, 12, 13))
    other = comm(1, 0xCD, (10, -1, -1))
    same = [ras_rank(0), ras_rank(2), ras_rank(7)]
    second = [rank | {"rank": number} for number, rank in enumerate(same)]
    join = join_ras(
        parse_ras(
            ras_json(ras_comm(0xAB, [ras_rank(r) for r in range(4)]), ras_comm(0xCD, second))
        ),
        [world, other],
    )
    match = join.matches[1]
    assert [match.named(rank.comm_rank) for rank in match.seen.ranks] == [10, -1, -1]
    assert [join.global_rank(match, rank) for rank in match.seen.ranks] == [10, 12, -1]
    assert join.ranks_of(RasProcess(host="10.0.0.1", pid=5002)) == (12,)
    assert join.ranks_of(RasProcess(host="10.0.0.9", pid=5002)) == ()


def test_a_process_that_is_two_ranks_by_the_records_is_none() -> None:
    crossed = comm(1, 0xCD, (11, 10))
    join = join_ras(answer((0xAB, 2), (0xCD, 2)), [comm(0, 0xAB, (10, 11)), crossed])
    assert join.ranks_of(RasProcess(host="10.0.0.1", pid=5000)) == ()


def test_a_process_with_two_devices_is_two_ranks() -> None:
    ranks = [ras_rank(0), ras_rank(1) | {"pid": 5000}]
    join = join_ras(parse_ras(ras_json(ras_comm(0xAB, ranks))), [comm(0, 0xAB, (4, 5))])
    assert join.ranks_of(RasProcess(host="10.0.0.1", pid=5000)) == (4, 5)


def test_text_joins_by_what_it_names() -> None:
    join = join_ras(parse_ras(TEXT_DEAD.encode()), [comm(3, 0xAB, tuple(range(8)))])
    assert [match.communicator.comm_id for match in join.matches] == [3]
    assert join.ranks_of(RasProcess(host="10.0.0.2", pid=5007)) == (7,)
