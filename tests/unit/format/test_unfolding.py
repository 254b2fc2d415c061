"""How much a value is when its shared parts are written out."""

from __future__ import annotations

from typing import Any

import pytest

from comminsight.format.unfolding import unfolded_size


def folded(n_levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(n_levels):
        value = [value] * 4
    return value


def cyclic() -> list[Any]:
    value: list[Any] = [1]
    value.append({"a": (value,)})
    return value


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (7, 1),
        ([], 1),
        ([1, 2], 3),
        ({"a": [1], "b": ([1],)}, 6),
        (folded(1), 5),
        (folded(3), 85),
        (folded(30), 1001),
        (cyclic(), 1001),
        ([folded(30), 1], 1001),
        ([[0] * 999] * 100_000, 1001),
    ],
)
def test_the_size_is_that_of_the_tree_and_ends_at_the_limit(value: Any, size: int) -> None:
    assert unfolded_size(value, 1000) == size


def test_it_is_counted_in_the_time_of_what_is_there() -> None:
    wide = [0] * 100_000
    assert unfolded_size([[wide] * 100_000] * 10, 1 << 60) == 10 * 100_000 * 100_001 + 11
