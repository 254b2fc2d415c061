"""Launches by member, from groups of which the answer names all, some or no members."""

from __future__ import annotations

import pytest

from comminsight.model.ops import Op
from comminsight.model.ras import RasCommunicator, RasLaunches, launched_by

AR, BC = Op.ALL_REDUCE, Op.BROADCAST


def group(n_launched: int, n_ranks: int, *comm_ranks: int, op: int = AR) -> RasLaunches:
    return RasLaunches(op=op, n_launched=n_launched, n_ranks=n_ranks, comm_ranks=comm_ranks)


@pytest.mark.parametrize(
    ("size", "groups", "expected"),
    [
        (4, [], {}),
        (4, [group(7, 4, 0, 1, 2, 3)], {0: 7, 1: 7, 2: 7, 3: 7}),
        (4, [group(7, 3), group(6, 1, 2)], {0: 7, 1: 7, 2: 6, 3: 7}),
        (4, [group(7, 4)], {0: 7, 1: 7, 2: 7, 3: 7}),
        (4, [group(7, 2), group(6, 1, 2)], {2: 6}),  # one member answered nothing
        (4, [group(7, 1), group(6, 3)], {}),  # which is which?
        (0, [group(7, 3), group(6, 1, 2)], {2: 6}),  # of how many members?
        (4, [group(7, 3, 1), group(6, 1, 2)], {1: 7, 2: 6}),  # some of a group are named
        (4, [group(7, 4, op=BC), group(6, 1, 2)], {2: 6}),
    ],
)
def test_launches_by_member(size: int, groups: list[RasLaunches], expected: dict[int, int]) -> None:
    seen = RasCommunicator(comm_hash=1, comm_size=size, launches=tuple(groups))
    assert launched_by(seen, AR) == expected
