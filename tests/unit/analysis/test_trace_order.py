"""When the nth op of one rank's trace is the nth of another's."""

from __future__ import annotations

import pytest

from comminsight.analysis.trace_order import kept_apart
from comminsight.model.activity import Activity
from comminsight.model.ops import Op
from tests.builders.activities import comm, compute


def rank_of(rank: int, steps: list[int], *, at_us: float = 0, label: str = "tp") -> list[Activity]:
    made = [compute(rank, at_us, 100)]
    return made + [
        comm(rank, Op.ALL_REDUCE, at_us + 10 * n, 5, step=step, comm_label=label)
        for n, step in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("second", "is_apart"),
    [
        (rank_of(1, [1, 1, 2]), False),
        (rank_of(1, [1, 2]), True),  # one fewer: which one?
        (rank_of(1, [1, 2, 2]), True),  # as many, in other steps
        (rank_of(1, [2, 2, 3]), True),
        (rank_of(1, [1, 1, 2], at_us=99), False),
        (rank_of(1, [1, 1, 2], at_us=500_000), True),  # its window has nothing in common
        (rank_of(1, [1, 2], label="dp"), False),  # no other rank to be matched with
    ],
)
def test_ranks_that_cannot_be_matched_are_kept_apart(
    second: list[Activity], is_apart: bool
) -> None:
    named, apart = kept_apart([*rank_of(0, [1, 1, 2]), *second])
    labels = {one.comm_label for one in named if one.global_rank == 0 and one.op}
    assert labels == {"tp of rank 0" if is_apart else "tp"}
    assert apart == ({"tp"} if is_apart else frozenset())


def test_an_op_that_one_rank_lacks_makes_its_communicator_doubtful_and_no_other() -> None:
    dp = [one for rank in (0, 1) for one in rank_of(rank, [1, 1], label="dp")]
    odd = comm(0, Op.BROADCAST, 50, 5, comm_label="tp", step=1)
    named, apart = kept_apart([*dp, *rank_of(0, [1]), *rank_of(1, [1]), odd])
    assert apart == {"tp"}
    assert {one.comm_label for one in named if one.op} == {"dp", "tp of rank 0", "tp of rank 1"}
