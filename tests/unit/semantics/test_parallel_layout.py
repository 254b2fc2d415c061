"""Dimensions and coordinates from communicators with roles."""

from __future__ import annotations

import pytest

from comminsight.model.layout import LayoutProblem
from comminsight.model.ops import CommRole
from comminsight.model.topology import Communicator
from comminsight.semantics.parallel_layout import parallel_layout


def groups(role: CommRole, *members: tuple[int, ...]) -> list[Communicator]:
    return [
        Communicator(
            comm_id=0, comm_hash=1, ordinal=0, role=role, is_role_inferred=False, members=m
        )
        for m in members
    ]


TP = groups(CommRole.TP, (0, 1), (2, 3), (4, 5), (6, 7))
DP = groups(CommRole.DP, (0, 2), (1, 3), (4, 6), (5, 7))
PP = groups(CommRole.PP, (0, 4), (1, 5), (2, 6), (3, 7))


def test_coordinates_and_order_of_three_dimensions() -> None:
    found = parallel_layout([*PP, *TP, *DP], 8)
    assert found.layout.order == "tp2-dp2-pp2"
    assert [d.stride for d in found.layout.dimensions] == [1, 2, 4]
    assert found.layout.is_complete
    assert found.by_rank[6] == {"tp": 0, "dp": 1, "pp": 1}


@pytest.mark.parametrize(
    ("communicators", "problem", "factor"),
    [
        ([*TP, *DP], LayoutProblem.FACTOR_MISSING, 2),
        ([*TP[:3], *DP, *PP], LayoutProblem.FACTOR_MISSING, 2),  # TP does not cover the world
        ([], LayoutProblem.NOTHING, 8),
        # a wrong role: what is called DP lies along TP
        ([*TP, *groups(CommRole.DP, *(c.members for c in TP))], LayoutProblem.CONTRADICTION, 1),
    ],
)
def test_what_keeps_a_layout_from_being_complete(
    communicators: list[Communicator], problem: LayoutProblem, factor: int
) -> None:
    found = parallel_layout(communicators, 8)
    assert (found.layout.problem, found.layout.unexplained_factor) == (problem, factor)
    assert not found.layout.is_complete
    assert bool(found.by_rank) is (problem is LayoutProblem.FACTOR_MISSING)


def test_groups_without_a_role_keep_it_open() -> None:
    found = parallel_layout([*TP, *DP, *PP], 8, n_undecided=1)
    assert found.layout.problem is LayoutProblem.UNKNOWN_GROUPS
    assert len(found.by_rank) == 8


def test_context_parallel_groups_inside_data_parallel_ones() -> None:
    data = groups(CommRole.DP, (0, 2, 4, 6), (1, 3, 5, 7))
    context = groups(CommRole.CP, (0, 2), (4, 6), (1, 3), (5, 7))
    tensor = groups(CommRole.TP, (0, 1), (2, 3), (4, 5), (6, 7))
    found = parallel_layout([*data, *context, *tensor], 8)
    assert found.layout.order == "tp2-cp2-dp2"
    assert found.by_rank[5] == {"tp": 1, "cp": 0, "dp": 1}
    assert [d.stride for d in found.layout.dimensions] == [1, 2, 4]


def test_neighbouring_stages_with_a_communicator_each_are_one_pipeline() -> None:
    pairs = groups(CommRole.PP, (0, 2), (2, 4), (4, 6), (1, 3), (3, 5), (5, 7))
    found = parallel_layout([*pairs, *TP], 8)
    assert found.layout.order == "tp2-pp4"
    assert found.by_rank[5] == {"tp": 1, "pp": 2}


def test_shards_and_replicas_are_two_dimensions() -> None:
    shard = groups(CommRole.DP_SHARD, (0, 1), (2, 3))
    replicate = groups(CommRole.DP_REPLICATE, (0, 2), (1, 3))
    found = parallel_layout([*shard, *replicate], 4)
    assert found.layout.order == "dp_shard2-dp_replicate2"
    assert found.layout.is_complete


def test_unknown_members_take_no_part() -> None:
    found = parallel_layout(groups(CommRole.TP, (0, 1), (2, -1)), 4)
    assert found.layout.problem is LayoutProblem.NOTHING
