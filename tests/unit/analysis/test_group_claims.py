from __future__ import annotations

import pytest

from comminsight.analysis.group_claims import group_conflicts
from comminsight.model.job_evidence import GroupClaim

Row = tuple[int, str, tuple[int, ...]]


def claims(*rows: Row, desc: str = "undefined") -> list[GroupClaim]:
    """(rank, name, members) each; all ranks that are named have the world as group 0 besides."""
    world = tuple(range(1 + max(max(rank, *members) for rank, _, members in rows)))
    everybody = sorted({rank for rank, _, _ in rows})
    return [
        *(GroupClaim(global_rank=r, name="0", members=world, desc="default_pg") for r in everybody),
        *(GroupClaim(global_rank=r, name=n, members=m, desc=desc) for r, n, m in rows),
    ]


def told(*rows: Row, desc: str = "undefined") -> list[tuple[str, bool, tuple[int, ...]]]:
    found = group_conflicts(claims(*rows, desc=desc))
    return [(one.name, one.is_contradicted, one.odd) for one in found]


ALIKE = [(rank, "1", (0, 1, 2)) for rank in range(3)]
SHIFTED = [(0, "1", (0, 1)), (1, "1", (0, 1)), (2, "1", (0, 1, 2)),
           (0, "2", (0, 1, 2)), (1, "2", (0, 1, 2))]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (ALIKE, []),
        # each pair made only its own group: nobody contradicts anybody
        ([(0, "1", (0, 3)), (3, "1", (0, 3)), (1, "1", (1, 2)), (2, "1", (1, 2))],
         [("1", False, ())]),
        # rank 2 did not make the first group: its first is the others' second
        (SHIFTED, [("1", True, (2,))]),
        # two ranks of two: nobody is in the minority
        ([(0, "1", (0, 1)), (1, "1", (0, 1, 2))], [("1", True, ())]),
        # only one rank is known to have the group
        ([(0, "7", (0, 1))], []),
        # a name made of a hash is that of its members
        ([(0, "a1b2", (0, 1)), (2, "a1b2", (2, 3))], []),
    ],
)  # fmt: skip
def test_claims_on_one_name(rows: list[Row], expected: list[tuple[str, bool, tuple[int, ...]]]
                            ) -> None:  # fmt: skip
    assert told(*rows) == expected


def test_ranks_of_another_world_are_of_another_job() -> None:
    rows = claims(*SHIFTED)
    other = GroupClaim(global_rank=3, name="0", members=(0, 1, 2, 3), desc="default_pg")
    assert group_conflicts([*rows, other]) == []


def test_a_process_that_says_two_things_of_one_name_is_not_believed() -> None:
    rows = claims(*SHIFTED, (2, "1", (0, 1)))
    assert group_conflicts(rows) == []


@pytest.mark.parametrize("descs", [("a", "b"), ("tp", "dp")])
def test_groups_of_equal_members_made_in_another_order(descs: tuple[str, str]) -> None:
    first, second = descs
    made = {0: (first, second), 1: (second, first), 2: (first, second)}
    rows = [
        GroupClaim(global_rank=rank, name=name, members=(0, 1, 2), desc=desc)
        for rank, names in made.items()
        for name, desc in zip(("1", "2"), names, strict=True)
    ]
    found = group_conflicts(rows)
    assert [(one.name, one.is_contradicted, one.odd) for one in found] == [
        ("1", True, (1,)), ("2", True, (1,)),
    ]  # fmt: skip


def test_descriptions_that_only_differ_by_rank_are_no_other_order() -> None:
    rows = [
        GroupClaim(global_rank=rank, name="1", members=(0, 1), desc=f"of rank {rank}")
        for rank in range(2)
    ]
    assert group_conflicts(rows) == []
