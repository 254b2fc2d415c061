"""Occurrences and periods, on streams of letters."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comminsight.model.learning import CutEvidence
from comminsight.semantics.matcher import Matcher
from comminsight.semantics.op_kinds import Detail
from comminsight.semantics.period import Pattern, RankCodes, _mixed, occurrences, periods_of
from comminsight.semantics.step_cut import StepCut, agreed, find_cut

KINDS = st.integers(0, 3)


@given(st.lists(KINDS, max_size=60), st.lists(KINDS, min_size=1, max_size=3))
def test_a_pattern_is_found_where_a_template_would_find_it(
    codes: list[int], pattern: list[int]
) -> None:
    fits = np.array([[kind == wanted for wanted in pattern] for kind in range(4)])
    found = occurrences(np.array(codes, np.int32), tuple(pattern))
    assert found.tolist() == Matcher(fits).feed(np.array(codes, np.intp)).tolist()


def rank_of(letters: str, *, from_start: bool = True, to_end: bool = True) -> RankCodes:
    """A rank whose ops are letters, the same in every detail."""
    codes = np.array([ord(letter) for letter in letters], np.int32)
    rank = object.__new__(RankCodes)
    rank.codes = (codes, codes, codes)
    rank.starts_ns = np.arange(len(codes))
    rank.stream = SimpleNamespace(is_from_start=from_start, is_to_end=to_end)  # type: ignore[assignment]
    rank._bags = np.concatenate([[0], np.cumsum(_mixed(codes))])
    return rank


def pattern_of(letters: str) -> Pattern:
    return Pattern(tuple(map(ord, letters)), Detail.CALL)


@pytest.mark.parametrize(
    ("letters", "is_regular"),
    [
        ("abxabxabxab", [True, True]),
        ("abxbaxabxab", [True, True]),  # in another order
        ("abxabcxabxabx", [False, True, True]),  # something came in
        ("abxaxabxabx", [False, True, True]),  # something is missing
    ],
)
def test_periods_are_alike_whatever_the_order_of_their_ops(
    letters: str, is_regular: list[bool]
) -> None:
    assert periods_of(rank_of(letters), pattern_of("x")).is_regular.tolist() == is_regular


@pytest.mark.parametrize(
    ("letters", "n_tail", "evidence"),
    [
        ("bcxabcxabcxabcxa", 1, CutEvidence.START),
        ("zzbcxabcxabcxabcxa", 1, CutEvidence.END),  # a set-up stands before the first step
        ("bcxabcxabcxabcxazz", 1, CutEvidence.START),  # an evaluation behind the last
        ("zbcxabcxabcxabcxaz", 1, CutEvidence.START),  # both: what they share decides
        ("abcxabcxabcxabcx", 0, CutEvidence.START),
        ("xabcxabcxabcxabc", 3, CutEvidence.START),
    ],
)
def test_the_ends_of_a_job_tell_where_a_step_begins(
    letters: str, n_tail: int, evidence: CutEvidence
) -> None:
    rank = rank_of(letters)
    cut = find_cut(rank, periods_of(rank, pattern_of("x")))
    assert (cut.n_tail, cut.evidence) == (n_tail, evidence)


def test_what_comes_in_between_tells_it_too() -> None:
    rank = rank_of("cxabcxabcxazbcxabcxab", from_start=False, to_end=False)
    cut = find_cut(rank, periods_of(rank, pattern_of("x")))
    assert (cut.n_tail, cut.evidence) == (1, CutEvidence.INSERTED)


def test_a_stream_from_the_middle_does_not_tell_it() -> None:
    rank = rank_of("cxabcxabcxabcxab", from_start=False, to_end=False)
    cut = find_cut(rank, periods_of(rank, pattern_of("x")))
    assert (cut.n_tail, cut.evidence) == (0, CutEvidence.ANCHOR)


def test_ranks_of_equal_periods_are_cut_at_one_place() -> None:
    right, wrong = (StepCut((1, 2), 0, n, CutEvidence.START) for n in (0, 1))
    other = StepCut((3,), 5, 1, CutEvidence.END)
    assert [cut.n_tail for cut in agreed([right, wrong, right, other])] == [0, 0, 0, 1]
