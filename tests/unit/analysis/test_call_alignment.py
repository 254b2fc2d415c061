"""What makes the calls of one rank out of those of another."""

from __future__ import annotations

import pytest

from comminsight.analysis.call_alignment import (
    Alignment,
    Difference,
    alignment,
    breaks_pattern,
    form_of,
    n_common,
    needed_count,
    pattern_of,
    signature,
)
from comminsight.model.call_history import CalledOp
from comminsight.model.ops import DType, Op

D = Difference


@pytest.mark.parametrize(
    ("reference", "own", "expected"),
    [
        ("ABCDE", "ABC", Alignment(D.NONE, 0, 3)),
        ("ABCDE", "BCDE", Alignment(D.SKIPPED, 1, 4)),
        ("ABCDEF", "DEF", Alignment(D.SKIPPED, 3, 3)),
        ("ABCD", "XABCD", Alignment(D.EXTRA, 1, 4)),
        ("ABCD", "XYABC", Alignment(D.EXTRA, 2, 3)),
        ("ABCDE", "BACDE", Alignment(D.PERMUTED, 2, 3)),
        ("ABCDE", "CABDE", Alignment(D.PERMUTED, 3, 2)),
        ("ABCDE", "XBCDE", Alignment(D.REPLACED, 1, 4)),
        # too little is known
        ("ABCDE", "B", Alignment(D.OTHER)),
        ("AB", "BA", Alignment(D.OTHER)),
        ("A", "X", Alignment(D.OTHER)),
        # calls that alternate: left out, added and permuted look the same
        ("ABABAB", "BABABA", Alignment(D.OTHER)),
        # two things at once
        ("ABCDEF", "CBXDEF", Alignment(D.OTHER)),
    ],
)
def test_alignment(reference: str, own: str, expected: Alignment) -> None:
    assert alignment(reference, own) == expected


def test_only_one_side_may_be_longer() -> None:
    assert n_common(["ABCD", "ABX", "AB"]) == 2
    assert n_common(["", "A"]) == 0


def calls(text: str) -> list[tuple[int, ...]]:
    return [(ord(one),) for one in text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ABCABCABC", (3, 3, "A")),
        ("XABCABCABCAB", (3, 3, "C")),
        # the run of equal calls inside a step is no pattern, the step is
        ("AAAAB" * 4, (5, 4, "A")),
        ("AAAAAAAA", None),
        ("ABAB", None),
        # a step seen twice, and in it something that alternates
        ("ABABABABC" * 2, None),
        ("XYZWVUABCABCABC"[:9], None),
    ],
)
def test_the_pattern_that_reaches_furthest_back(
    text: str, expected: tuple[int, int, str] | None
) -> None:
    found = pattern_of(calls(text))
    told = found and (found.period, found.n_repeats, chr(found.following[0]))
    assert told == expected


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [("ABCABCABCA", False), ("ABCABCABCB", True), ("ABCABCABCX", False), ("ABCB", False)],
)
def test_a_call_that_was_never_made_before_may_begin_something_new(
    text: str, is_broken: bool
) -> None:
    assert (breaks_pattern(calls(text), len(text) - 1) is not None) == is_broken


@pytest.mark.parametrize(
    ("call", "form"),
    [
        ("all_gather", "list"), ("_all_gather_base", "flat"), ("all_gather_into_tensor", "flat"),
        ("ALLGATHER", "list"), ("reduce_scatter", "list"), ("_reduce_scatter_base", "flat"),
        ("reduce_scatter_tensor_coalesced", "flat"), ("all_reduce", ""), ("", ""),
    ],
)  # fmt: skip
def test_lists_and_flat_tensors(call: str, form: str) -> None:
    assert form_of(call) == form


@pytest.mark.parametrize(
    ("op", "count", "out_count", "expected"),
    [
        (Op.ALL_REDUCE, 8, 8, 8), (Op.ALL_GATHER, 8, 32, 32), (Op.ALL_GATHER, 8, 0, 8),
        (Op.ALL_TO_ALL, 8, 9, 0), (Op.BARRIER, 1, 1, 0), (Op.UNKNOWN, 7, 7, 0),
    ],
)  # fmt: skip
def test_what_has_to_be_as_many(op: Op, count: int, out_count: int, expected: int) -> None:
    assert needed_count(op, count, out_count) == expected


def test_a_list_and_a_flat_gather_of_the_same_are_one_call() -> None:
    def gather(call: str) -> CalledOp:
        return CalledOp(
            comm_id=1, match_seq=4, op=Op.ALL_GATHER, call=call, dtype=DType.FLOAT32, count=8,
            out_count=32,
        )  # fmt: skip

    assert signature(gather("all_gather")) == signature(gather("_all_gather_base"))
