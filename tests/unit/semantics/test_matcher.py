"""Strict consecutive matching with restart, and the classes it runs on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.model.ops import CommRole, DType, Op
from comminsight.semantics import matcher
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.matcher import AnyMatcher, Matcher, sound_suffix
from comminsight.semantics.symbols import SymbolCoder
from comminsight.semantics.template import Peer, Symbol
from tests.builders import allgather, allreduce, comm_row, comm_rows, ops, recv, send


def completions(sequence: str, stream: str, chunk: int = 1000) -> list[int]:
    """Positions at which ``sequence`` completes in ``stream``; letters are classes."""
    letters = sorted({*sequence, *stream})
    fits = np.array([[letter == wanted for wanted in sequence] for letter in letters])
    table = Matcher(fits)
    classes = np.array([letters.index(letter) for letter in stream], np.uint16)
    return [
        first + int(index)
        for first in range(0, len(stream), chunk)
        for index in table.feed(classes[first : first + chunk])
    ]


@pytest.mark.parametrize(
    ("sequence", "stream", "expected"),
    [
        ("A", "ABA", [0, 2]),
        ("AB", "ABAB", [1, 3]),
        ("AB", "AXBAB", [4]),  # a wrong op breaks the candidate
        ("AB", "AAB", [2]),  # and is tested again as a new start
        ("AAB", "AAAB", []),  # restart, not KMP
        ("AAB", "AAXAAB", [5]),
        ("AA", "AAAAA", [1, 3]),  # completions share no op
    ],
)
def test_restart_matching(sequence: str, stream: str, expected: list[int]) -> None:
    assert completions(sequence, stream) == expected
    assert completions(sequence, stream, chunk=1) == expected


MIXED = st.text("ABC", max_size=60)
RARE = st.lists(st.sampled_from(["A", "B", "AB", "AAB", "C" * 9, "C" * 40])).map("".join)


@settings(deadline=None)
@given(st.text("ABC", min_size=1, max_size=5), MIXED | RARE, st.integers(1, 90))
def test_the_table_equals_a_naive_scan_in_any_chunking(
    sequence: str, stream: str, chunk: int
) -> None:
    expected, state = [], 0
    for position, letter in enumerate(stream):
        state = state + 1 if letter == sequence[state] else int(letter == sequence[0])
        if state == len(sequence):
            expected.append(position)
            state = 0
    assert completions(sequence, stream, chunk) == expected
    assert list(matcher.completions(tuple(map(ord, sequence)), map(ord, stream))) == expected


@pytest.mark.parametrize(
    ("shape", "blocks", "suffix"),
    [
        ("AAB", ["AAB", "AAB"], "B"),
        ("ABAB", ["ABAB", "ABAB"], "BAB"),  # B and AB complete within the block too
        ("AAA", ["AAA", "AAA"], "AAA"),
        ("AB", ["AB", "ABC"], None),  # whatever ends the first is within the second
        ("AB", ["AB", "CC", "AB"], "B"),  # other blocks may end without it
        ("BA", ["BA", "AC"], "BA"),  # A is within the block behind
    ],
)
def test_the_shortest_end_that_completes_at_block_ends_only(
    shape: str, blocks: list[str], suffix: str | None
) -> None:
    found = sound_suffix(tuple(map(ord, shape)), [tuple(map(ord, block)) for block in blocks])
    assert found == (None if suffix is None else tuple(map(ord, suffix)))


def test_alternatives_give_first_and_last_op_in_stream_order() -> None:
    one = np.array([[True], [False]])
    two = np.array([[False, True], [True, False]])
    hits = AnyMatcher([one, two]).feed(np.array([1, 0, 1, 0], np.uint16), base=100)
    assert len(hits) == 4
    assert hits.next_from(101) == (101, 101)
    assert hits.next_from(102) == (102, 103)
    assert hits.next_from(104) is None


COMMS = comm_rows(
    comm_row(1, "0-7", 3, desc=b"default_pg"), comm_row(2, [2, 3, 4], 3, desc=b"mesh_pp")
)
AN_ALLREDUCE = allreduce(1, 0, comm=1, size=4)


@pytest.mark.parametrize(
    ("symbol", "row", "fits"),
    [
        (Symbol(), AN_ALLREDUCE, True),
        (Symbol(roles=(CommRole.GLOBAL,)), AN_ALLREDUCE, True),
        (Symbol(roles=(CommRole.TP,)), AN_ALLREDUCE, False),
        (Symbol(ops=(Op.ALL_REDUCE, Op.SEND)), AN_ALLREDUCE, True),
        (Symbol(ops=(Op.ALL_REDUCE,)), allgather(1, 0), False),
        (Symbol(count=1), AN_ALLREDUCE, True),
        (Symbol(count=1), allreduce(1, 0, size=8), False),
        (Symbol(max_bytes=4), AN_ALLREDUCE, True),
        (Symbol(max_bytes=3), AN_ALLREDUCE, False),
        (Symbol(min_bytes=4), AN_ALLREDUCE, True),
        (Symbol(min_bytes=5), AN_ALLREDUCE, False),
        (Symbol(dtypes=(DType.FLOAT32,)), AN_ALLREDUCE, True),
        (Symbol(dtypes=(DType.INT32,)), AN_ALLREDUCE, False),
        (Symbol(peer=Peer.NEXT), send(1, 0, comm=2, peer=2), True),
        (Symbol(peer=Peer.PREVIOUS), send(1, 0, comm=2, peer=2), False),
        (Symbol(peer=Peer.PREVIOUS), recv(1, 0, comm=2, peer=0), True),
        (Symbol(peer=Peer.NEXT), AN_ALLREDUCE, False),
        (Symbol(roles=(CommRole.UNKNOWN,)), allreduce(1, 0, comm=4_000_000_000), True),
    ],
)
def test_a_predicate_fits_exactly_its_ops(symbol: Symbol, row: np.ndarray, fits: bool) -> None:
    table = CommTable(world_size=8)
    table.add(COMMS)
    coder = SymbolCoder(((symbol,), (Symbol(ops=(Op.BARRIER,)),)))
    classes = coder.encode(ops(row, allgather(2, 1)), table)
    assert coder.fits[classes[0]].tolist() == [fits, False]
    assert classes.max() < coder.n_classes


def test_more_bounds_than_comparisons_pay_for() -> None:
    table = CommTable(world_size=8)
    table.add(COMMS)
    sizes = range(4, 404, 4)
    coder = SymbolCoder(tuple((Symbol(min_bytes=size, max_bytes=size),) for size in sizes))
    rows = ops(*(allreduce(1, 0, size=size) for size in sizes))
    assert (coder.fits[coder.encode(rows, table)] == np.eye(len(rows), dtype=bool)).all()
