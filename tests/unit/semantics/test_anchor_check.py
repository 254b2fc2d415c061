"""The three rules of a global anchor, and which of them fails on which rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.model.ops import Op
from comminsight.model.step import StepEvidence
from comminsight.model.template_view import AnchorCheck, AnchorRule, Outcome
from comminsight.semantics.anchor_check import RankAnchors, check_anchors


def rank(
    number: int,
    match_seqs: Sequence[int] = (3, 6, 9, 12),
    *,
    op: Op = Op.ALL_REDUCE,
    role: str = "GLOBAL",
    size: int = 4,
    sizes: Sequence[int] = (),
    comm: int = 1,
    before: Sequence[int] = (),
    behind: Sequence[int] = (),
) -> RankAnchors:
    """One rank with an anchor per step, by default the last of six ops."""
    anchors = tuple(
        StepEvidence(
            comm_hash=comm, comm_index=1, role=role, op=op, op_seq=seq, match_seq=seq, func_seq=0,
            size_bytes=sizes[i] if sizes else size, start_ns=seq, seq=seq,
        )
        for i, seq in enumerate(match_seqs)
    )  # fmt: skip
    n = len(anchors)
    return RankAnchors(number, anchors, np.array(before or [5] * n), np.array(behind or [0] * n))


def outcomes(*ranks: RankAnchors) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Per rule that does not hold: outcome and ranks."""
    return {
        check.rule.value: (check.outcome.value, check.ranks)
        for check in check_anchors(ranks)
        if check.outcome is not Outcome.HOLDS
    }


def test_an_anchor_that_holds_says_what_it_is() -> None:
    meaning, place, pace = check_anchors([rank(n) for n in range(4)])
    assert [c.rule for c in (meaning, place, pace)] == list(AnchorRule)
    assert {c.outcome for c in (meaning, place, pace)} == {Outcome.HOLDS}
    assert meaning.evidence.params == {"common": "all_reduce@GLOBAL 4 B"}
    assert place.evidence.params == {"places": [0]}
    assert pace.evidence.params == {"n": 3}


def test_another_op_role_or_size_on_a_rank_is_another_meaning() -> None:
    for odd in (rank(2, op=Op.BROADCAST), rank(2, role="TP"), rank(2, size=8)):
        assert outcomes(rank(0), rank(1), odd, rank(3)) == {"same_meaning": ("fails", (2,))}


def test_a_size_that_changes_from_step_to_step_is_left_out() -> None:
    assert outcomes(rank(0, sizes=(8, 9, 8, 7)), rank(1, size=8)) == {}


def test_a_place_is_stable_from_either_end_of_the_step() -> None:
    assert outcomes(rank(0, before=(5, 5, 9, 5)), rank(1)) == {}  # one step was longer before it
    assert outcomes(rank(0, behind=(0, 3, 0, 1)), rank(1)) == {}  # ... or behind it
    moving = rank(3, before=(5, 6, 5, 5), behind=(0, 0, 1, 0))
    assert outcomes(rank(0), rank(1), moving) == {"stable_place": ("fails", (3,))}


def test_a_lost_step_is_no_fault() -> None:
    whole = [3 * n for n in range(1, 41)]
    lossy = whole[:20] + whole[21:]
    assert outcomes(rank(0, whole), rank(1, whole), rank(2, lossy)) == {}


def test_a_rank_that_advances_otherwise_is_named() -> None:
    found = check_anchors([rank(0), rank(1), rank(2, (2, 4, 6, 8))])[2]
    assert (found.outcome, found.ranks) == (Outcome.FAILS, (2,))
    assert found.evidence.params == {"ranks": [2], "own": 2, "common": 3}


def test_a_rank_that_takes_other_ops_of_the_communicator_is_named() -> None:
    shifted = rank(2, (4, 7, 10, 13))
    assert outcomes(rank(0), rank(1), shifted) == {"advances_equally": ("fails", (2,))}
    apart = rank(2, (30, 33, 36, 39))
    assert "advances_equally" in outcomes(rank(0), rank(1), apart)


def test_communicators_are_compared_with_themselves_only() -> None:
    pairs = [rank(0, comm=7), rank(1, comm=7), rank(2, (4, 7, 10), comm=8), rank(3, (4, 7), comm=8)]
    assert outcomes(*pairs) == {}


def test_a_send_or_receive_is_no_op_of_all_ranks() -> None:
    ends = [rank(0, op=Op.RECV), rank(1, op=Op.RECV)]
    assert outcomes(*ends) == {"advances_equally": ("fails", (0, 1))}


def test_too_little_is_no_evidence() -> None:
    def unknown(checks: Sequence[AnchorCheck]) -> list[str]:
        return [c.rule.value for c in checks if c.outcome is Outcome.UNKNOWN]

    assert unknown(check_anchors([])) == [rule.value for rule in AnchorRule]
    assert unknown(check_anchors([rank(0, (3,)), rank(1, (3,))])) == [r.value for r in AnchorRule]
    assert unknown(check_anchors([rank(0)])) == ["same_meaning", "advances_equally"]
