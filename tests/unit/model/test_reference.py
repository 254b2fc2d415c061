"""References of verdicts: what is written is read again, and nothing else is."""

from __future__ import annotations

import pytest

from comminsight.model.reference import (
    MAX_RANKS,
    Reference,
    RefKind,
    comm_ref,
    evidence_ref,
    op_ref_text,
    parse_reference,
    rank_ref,
    step_ref,
    verdict_ref,
)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("run", Reference(RefKind.RUN)),
        (comm_ref(0), Reference(RefKind.COMM, comm_id=0)),
        (rank_ref([7, 5]), Reference(RefKind.RANK, ranks=(5, 7))),
        (step_ref(5, 41), Reference(RefKind.STEP, ranks=(5,), step=41)),
        (op_ref_text(3, 120, 5), Reference(RefKind.OP, ranks=(5,), comm_id=3, op_seq=120)),
        (verdict_ref(2), Reference(RefKind.VERDICT, verdict=2)),
        (evidence_ref(1, 4), Reference(RefKind.EVIDENCE, verdict=1, evidence=4)),
    ],
)
def test_what_is_written_is_read(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference


def test_what_is_not_known_has_no_reference() -> None:
    assert (comm_ref(-1), rank_ref([-1]), rank_ref([])) == ("", "", "")
    assert [op_ref_text(*place) for place in ((-1, 1, 1), (1, -1, 1), (1, 1, -1))] == [""] * 3


def test_of_many_ranks_the_first_are_named() -> None:
    reference = parse_reference(rank_ref(range(100)))
    assert reference is not None
    assert reference.ranks == tuple(range(MAX_RANKS))


@pytest.mark.parametrize(
    "text",
    ["", "run ", "rank:", "rank:-1", "rank:1,", "rank:٣", "rank:1/step:", "op:1:2", "comm:1;ls",
     "step_cost_ns=3", "evidence:1", "rank:1,2,3,4,5,6,7,8,9", "rank:12345678901"],
)  # fmt: skip
def test_nothing_else_is_a_reference(text: str) -> None:
    assert parse_reference(text) is None
