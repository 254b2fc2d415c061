"""The statistics behind a straggler: windows, chance, false alarms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comminsight.diagnosis.recurrence import Recurrence, episodes, fisher_tail, unsuspected


@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 60))
def test_fisher_tail_is_the_sum_of_its_terms(n: int, n_hit: int, others: int, more: int) -> None:
    n_hit, other_hits = min(n_hit, n), min(others, more)
    n_hits = n_hit + other_hits
    exact = sum(
        math.comb(n, k) * math.comb(others, n_hits - k) for k in range(n_hit, min(n, n_hits) + 1)
    ) / math.comb(n + others, n_hits)
    assert fisher_tail(n_hit, n, other_hits, others) == pytest.approx(exact, rel=1e-9)


def test_unsuspected_drops_a_quarter_of_the_ranks_from_the_top() -> None:
    level = np.array([9, 1, 8, 2, 3, 4, 5, 6])
    assert unsuspected(level, 0).tolist() == [1, 2, 3, 4, 5]
    assert unsuspected(np.array([9, 1]), 0).tolist() == [1]
    assert unsuspected(np.array([9]), 0).tolist() == []


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (slice(None), (Recurrence.ALWAYS, 0, 30)),
        (slice(11, None), (Recurrence.SINCE, 11, 30)),
        (slice(7, 17), (Recurrence.SINCE, 7, 17)),
        (slice(0, 30, 5), (Recurrence.INTERMITTENT, 0, 30)),
    ],
)
def test_windows(steps: slice, expected: tuple[Recurrence, int, int]) -> None:
    cost = np.random.default_rng(3).exponential(1.0, (30, 8)).clip(max=4)
    cost[steps, 2] += 50
    (found,) = episodes(cost, np.full(8, 5.0), 20.0)
    assert (found.recurrence, found.first, found.last) == expected
    assert found.column == 2
    assert found.cost_ns == pytest.approx(51, abs=2)


@pytest.mark.parametrize("n_ranks", [2, 4, 8])
def test_heavy_tailed_noise_that_is_the_same_for_all_names_nobody(n_ranks: int) -> None:
    rng = np.random.default_rng(5)
    n_named = sum(
        bool(episodes(rng.lognormal(0, 1.5, (30, n_ranks)), np.full(n_ranks, 1.0), 3.0))
        for _ in range(300)
    )
    assert n_named == 0
