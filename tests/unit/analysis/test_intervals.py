"""Sets of time against the same sets on a grid of instants."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from comminsight.analysis.intervals import common, length_ns, united, without

GRID = 60
Pairs = list[tuple[int, int]]
SETS = st.lists(st.tuples(st.integers(0, GRID), st.integers(0, GRID)), max_size=12)


def grid(pairs: Pairs) -> np.ndarray:
    found = np.zeros(GRID, bool)
    for begin, end in pairs:
        found[begin:end] = True
    return found


def rows(pairs: Pairs) -> np.ndarray:
    return np.array(pairs, np.int64).reshape(-1, 2)


@given(SETS, SETS)
def test_sets_are_those_of_the_grid(first: Pairs, second: Pairs) -> None:
    a, b = united(rows(first)), united(rows(second))
    for made, expected in (
        (a, grid(first)),
        (common(a, b), grid(first) & grid(second)),
        (without(a, b), grid(first) & ~grid(second)),
    ):
        assert length_ns(made) == int(expected.sum())
        assert (grid([(int(x), int(y)) for x, y in made]) == expected).all()
        assert (made[1:, 0] > made[:-1, 1]).all() or made is not a


@given(SETS, SETS)
def test_common_and_rest_make_the_whole(first: Pairs, second: Pairs) -> None:
    a, b = united(rows(first)), united(rows(second))
    assert length_ns(common(a, b)) + length_ns(without(a, b)) == length_ns(a)
