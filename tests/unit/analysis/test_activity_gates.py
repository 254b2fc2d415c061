"""Who was late in traces of several ranks: named right on any clocks, or not named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.analysis.activity_gates import activity_gates, members_of
from comminsight.analysis.call_gates import DOUBTS, KNOWN
from comminsight.model.activity import Activity
from comminsight.model.exposed import OwnerDoubt
from comminsight.model.ops import Op
from tests.builders.activities import US, comm, on_ranks, shifted

MS_US = 1000.0
EVERY_US = 1_000


def entered(starts_us: list[list[float]], transfer_us: float = 5, **more: object) -> list[Activity]:
    """One all_reduce after another: ``starts_us[n][rank]``; all end together."""
    return [
        comm(rank, Op.ALL_REDUCE, n * EVERY_US + start, max(starts) - start + transfer_us, **more)
        for n, starts in enumerate(starts_us)
        for rank, start in enumerate(starts)
    ]


def named(calls: list[Activity], world: int) -> list[int]:
    return activity_gates(calls, world)[0].late_rank.tolist()


def doubts(calls: list[Activity], world: int) -> set[OwnerDoubt]:
    found = activity_gates(calls, world)[0].doubt.tolist()
    return {DOUBTS[one] for one in found if one != KNOWN}


@pytest.mark.parametrize("ahead_us", [0.0, 7 * MS_US, -1e6])
@pytest.mark.parametrize("late", [0, 1, 2])
def test_the_late_rank_is_named_whatever_the_clocks_say(late: int, ahead_us: float) -> None:
    starts = [[0.0, 0.0, 0.0], [90.0 if rank == late else 0.0 for rank in range(3)]]
    calls = [shifted(one, ahead_us * one.global_rank) for one in entered(starts)]
    found, error_ns = activity_gates(calls, 3)
    assert found.late_rank.tolist()[3:] == [-1 if rank == late else late for rank in range(3)]
    assert found.late_rank.tolist()[:3] == [-1, -1, -1]
    assert error_ns is not None
    assert 0 < error_ns <= 20 * US
    own = [one for one in range(3, 6) if one != 3 + late]
    waits = found.gate_ns[own] - np.array([calls[one].start_ns for one in own])
    assert np.abs(waits - 90 * US).max() <= error_ns


def test_one_that_is_always_late_may_as_well_have_another_clock() -> None:
    calls = entered([[0.0, 90.0]] * 4)
    assert set(named(calls, 2)) == {-1}
    assert doubts(calls, 2) == {OwnerDoubt.CLOCKS}


ENTRIES = st.lists(
    st.lists(st.integers(0, 300), min_size=3, max_size=3), min_size=1, max_size=6
)  # fmt: skip


@given(ENTRIES, st.lists(st.integers(-5000, 5000), min_size=3, max_size=3), st.integers(1, 40))
@settings(deadline=None)
def test_nobody_but_the_last_is_ever_named(
    entries: list[list[int]], ahead_us: list[int], transfer_us: int
) -> None:
    calls = [
        shifted(one, ahead_us[one.global_rank])
        for one in entered([[float(at) for at in one] for one in entries], transfer_us)
    ]
    for row, late in enumerate(named(calls, 3)):
        starts = entries[row // 3]
        assert late == -1 or (starts[late] == max(starts) and starts.count(max(starts)) == 1)
        assert late != row % 3


@pytest.mark.parametrize(
    ("label", "world", "expected"),
    [
        ("dp:5 (0-3)", 8, {0, 1, 2, 3}),
        ("(0,2)", 4, {0, 1, 2, 3}),  # a name that happens to be written so
        ("pp:3 (1,3)", 4, {1, 3}),
        ("", 2, {0, 1}),
        ("stream 7 of rank 1", 2, None),
        ("", 0, None),
        ("dp:5 (0-3)", 0, None),
        ("x (3-1)", 4, None),
    ],
)
def test_members_are_those_that_a_label_states(
    label: str, world: int, expected: set[int] | None
) -> None:
    assert members_of(label, world) == (OwnerDoubt.UNMATCHED if expected is None else expected)


SYNCHRONOUS = [[0.0, 0.0], [90.0, 0.0]]


@pytest.mark.parametrize(
    ("calls", "world", "expected"),
    [
        (entered(SYNCHRONOUS, comm_label="dp:1 (0-2)"), 3, OwnerDoubt.ABSENT),
        (entered(SYNCHRONOUS), 3, OwnerDoubt.ABSENT),
        (entered(SYNCHRONOUS), 0, OwnerDoubt.UNMATCHED),
        (entered(SYNCHRONOUS, comm_label="x of rank 0")[::2], 2, OwnerDoubt.ABSENT),
        (entered(SYNCHRONOUS)[::2], 0, OwnerDoubt.ABSENT),
        (entered(SYNCHRONOUS)[:-1], 2, OwnerDoubt.UNMATCHED),
        ([*entered(SYNCHRONOUS)[:3], comm(1, Op.ALL_GATHER, EVERY_US, 95)], 2,
         OwnerDoubt.UNMATCHED),
        ([*entered(SYNCHRONOUS), *on_ranks((0, 1), [comm(0, Op.ALL_REDUCE, 1, 2)])], 2,
         OwnerDoubt.UNMATCHED),
        (entered(SYNCHRONOUS, comm_label="x of rank 0"), 2, OwnerDoubt.UNMATCHED),
        ([comm(0, Op.SEND, 0, 9), comm(1, Op.RECV, 0, 9)], 2, OwnerDoubt.UNMATCHED),
    ],
    ids=("absent", "one-rank-without-trace", "no-job", "one-trace", "one-trace-of-unknown-world",
         "one-call-less", "other-op", "at-once", "one-rank", "p2p"),
)  # fmt: skip
def test_what_cannot_be_matched_names_nobody(
    calls: list[Activity], world: int, expected: OwnerDoubt
) -> None:
    assert set(named(calls, world)) == {-1}
    assert doubts(calls, world) == {expected}


def test_a_communicator_that_cannot_be_matched_leaves_the_others_alone() -> None:
    lone = comm(0, Op.ALL_REDUCE, 50, 5, comm_label="tp:2 (0-1)")
    found = named([*entered(SYNCHRONOUS, comm_label="dp:1 (0-1)"), lone], 2)
    assert found == [-1, -1, -1, 0, -1]


def test_unlike_sizes_do_not_match_except_where_they_may_differ() -> None:
    def calls(op: Op) -> list[Activity]:
        return [
            comm(rank, op, at + late * (rank == 0), 95 - late * (rank == 0), size_bytes=4 + rank)
            for at, late in ((0, 0), (EVERY_US, 90))
            for rank in range(2)
        ]

    assert doubts(calls(Op.ALL_REDUCE), 2) == {OwnerDoubt.UNMATCHED}
    assert doubts(calls(Op.ALL_TO_ALL), 2) <= {OwnerDoubt.CLOCKS}


def test_no_calls() -> None:
    found, error_ns = activity_gates([], 2)
    assert (len(found.gate_ns), error_ns) == (0, None)
