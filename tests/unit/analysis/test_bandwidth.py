"""Paths against their peers: what is slow, and what slow paths have in common."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comminsight.analysis.bandwidth import (
    common_place,
    common_ranks,
    compare_paths,
    size_dips,
)
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.ops import Op


def pair(a: int, b: int, gbs: float, *, size: int = 1 << 20, op: Op = Op.SEND) -> BandwidthRow:
    return BandwidthRow(
        op=op, size_bytes=size, busbw_gbs=gbs, ranks=(a, b), hosts=(f"h{a}", f"h{b}")
    )


RING = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)]


def ring(slow: set[tuple[int, int]], gbs: float = 5.0) -> list[BandwidthRow]:
    return [pair(a, b, gbs if (a, b) in slow else 10 + 0.05 * a) for a, b in RING]


@pytest.mark.parametrize(
    ("slow", "ranks", "places"),
    [
        (set(), set(), set()),
        ({(1, 2), (2, 3)}, {2}, {"h2"}),
        ({(0, 1), (5, 0)}, {0}, {"h0"}),
        ({(1, 2)}, set(), set()),  # both ends are well elsewhere: the path alone
        ({(0, 1), (3, 4)}, set(), set()),  # two paths with nothing in common
    ],
)
def test_what_slow_paths_have_in_common(
    slow: set[tuple[int, int]], ranks: set[int], places: set[str]
) -> None:
    found = compare_paths(ring(slow))
    assert {row.ranks for row in found.slow} == slow
    assert common_ranks(found.slow, found.normal) == ranks
    assert common_place(found.slow, found.normal) == places


def test_too_few_peers_or_a_slow_majority_say_nothing() -> None:
    assert compare_paths(ring({(1, 2)})[:3]).slow == ()
    most = {(0, 1), (1, 2), (2, 3), (3, 4)}
    assert compare_paths(ring(most)).slow == ()


def test_paths_over_other_numbers_of_hosts_are_no_peers() -> None:
    inside = [
        BandwidthRow(op=Op.SEND, size_bytes=64, busbw_gbs=80.0, ranks=(a, a + 9), hosts=("h0",))
        for a in range(5)
    ]
    between = [pair(a, a + 1, 10.0, size=64) for a in range(2)]
    assert compare_paths([*inside, *between]).slow == ()


def test_the_largest_size_counts() -> None:
    """A short transfer is bound by its startup, where a slow link does not show."""
    short = [pair(a, b, 0.1, size=64) for a, b in RING]
    found = compare_paths([*short, *ring({(1, 2), (2, 3)})])
    assert common_ranks(found.slow, found.normal) == {2}


def test_slow_in_one_op_and_normal_in_another_is_neither() -> None:
    rows = ring({(1, 2), (2, 3)}) + [pair(a, b, 20.0, op=Op.ALL_REDUCE) for a, b in RING]
    found = compare_paths(rows)
    assert found.slow == ()
    assert {(1, 2), (2, 3)}.isdisjoint(row.ranks for row in found.normal)


@given(
    st.lists(st.floats(0.97, 1.03), min_size=6, max_size=6),
    st.floats(0.001, 1e6),
)
def test_small_differences_are_none_at_any_speed(noise: list[float], gbs: float) -> None:
    rows = [pair(a, b, gbs * one) for (a, b), one in zip(RING, noise, strict=True)]
    found = compare_paths(rows)
    assert found.slow == ()
    assert len(found.normal) == len(RING)


@pytest.mark.parametrize(
    ("values", "dips"),
    [
        ([1, 2, 4, 8, 16, 20, 20], []),
        ([1, 2, 8, 0.4, 0.4, 20, 20], [0.4, 0.4]),
        ([1, 8, 20, 20, 9, 9, 9], []),  # a step that stays
        ([10, 20, 20, 1, 1, 1, 1], []),  # never recovers: no hole between two good sides
        ([10, 20, 1, 20, 1, 20, 20], [1, 1]),
    ],
)
def test_holes_in_a_curve(values: list[float], dips: list[float]) -> None:
    rows = [pair(0, 1, gbs, size=1 << (10 + i)) for i, gbs in enumerate(values)]
    found = size_dips(reversed(rows))
    assert [row.busbw_gbs for rows, _ in found for row in rows] == dips
