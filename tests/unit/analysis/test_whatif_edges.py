from __future__ import annotations

import numpy as np
import pytest

from comminsight.analysis.whatif_edges import RowKind, step_edges

F, B = RowKind.COMPUTE_FORWARD, RowKind.COMPUTE_BACKWARD
SF, SB, RF, RB = (
    RowKind.SEND_FORWARD, RowKind.SEND_BACKWARD, RowKind.RECV_FORWARD, RowKind.RECV_BACKWARD,
)  # fmt: skip
OTHER = RowKind.OTHER


def edges(*kinds: RowKind, ranks: list[int] | None = None) -> list[set[int]]:
    """What each row waits for; rows start in their order."""
    rank = np.array(ranks or [0] * len(kinds))
    found = step_edges(rank, np.array(kinds), np.arange(len(kinds)) * 10)
    return [set(row[row < len(kinds)].tolist()) for row in found]


@pytest.mark.parametrize(
    ("kinds", "after"),
    [
        ((F, F, B), [set(), {0}, {1}]),  # computes run one after another
        ((OTHER, F, B, OTHER, OTHER), [set(), {0}, {1}, {2}, {3}]),  # around the compute, a chain
        ((F, SF, F, SF), [set(), {0}, {0}, {2, 1}]),  # a send waits for what it sends
        ((RF, F, RF, F), [set(), {0}, {0, 1}, {1, 2}]),  # posted after the compute before
        ((F, RB, B, SB), [set(), set(), {0, 1}, {2}]),  # the first receive waits for nothing
        ((OTHER, OTHER), [set(), {0}]),  # a rank that computes nothing
        ((F, F, OTHER, B), [set(), {0}, {0}, {1}]),  # overlaps: after the compute before
    ],
)
def test_what_an_op_waits_for_on_its_rank(
    kinds: tuple[RowKind, ...], after: list[set[int]]
) -> None:
    assert edges(*kinds) == after


def test_ranks_do_not_wait_for_each_other_here() -> None:
    assert edges(F, F, B, B, ranks=[0, 1, 0, 1]) == [set(), set(), {0}, {1}]


def test_more_receives_than_computes_are_refused() -> None:
    with pytest.raises(ValueError, match="2 P2P ops of a direction for 1 computes"):
        edges(RF, RF, F)
