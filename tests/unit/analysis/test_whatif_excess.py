from __future__ import annotations

import numpy as np
import pytest

from comminsight.analysis.whatif_excess import (
    Removed,
    beyond_each,
    beyond_others,
    beyond_own,
    beyond_totals,
)

STEPS, RANKS, OPS = 20, 8, 5
RNG_SEED = 11


def healthy(sigma: float = 0.02) -> np.ndarray:
    """Durations of about 1000 with noise, ``(STEPS, RANKS, OPS)``."""
    return 1000 * (1 + sigma * np.random.default_rng(RNG_SEED).standard_normal((STEPS, RANKS, OPS)))


def per_rank(level: np.ndarray) -> np.ndarray:
    """Mean over the steps of what goes of a rank's step."""
    means: np.ndarray = level.sum(axis=2).mean(axis=0)
    return means


def ordered(removed: Removed) -> bool:
    low, expected, high = removed.levels()
    return bool((low >= 0).all() and (low <= expected).all() and (expected <= high).all())


def test_nothing_is_expected_to_go_from_healthy_ranks() -> None:
    removed = beyond_each(healthy())
    assert ordered(removed)
    assert removed.low.max() == 0
    assert per_rank(removed.expected).max() < 50  # of 5000


@pytest.mark.parametrize("rank", [0, 3, 7])
@pytest.mark.parametrize("extra", [100.0, 400.0])
def test_a_rank_that_is_slow_for_good_loses_what_it_is_slower(rank: int, extra: float) -> None:
    grid = healthy()
    grid[:, rank] += extra
    removed = beyond_each(grid)
    assert ordered(removed)
    assert per_rank(removed.expected)[rank] == pytest.approx(OPS * extra, rel=0.1)
    assert 0 < per_rank(removed.low)[rank] < OPS * extra < per_rank(removed.high)[rank] * 1.1
    assert np.delete(per_rank(removed.expected), rank).max() < 50


def test_of_two_ranks_the_slower_loses_the_difference() -> None:
    grid = healthy()[:, :2]
    grid[:, 1] += 300
    expected = per_rank(beyond_each(grid).expected)
    assert expected[1] == pytest.approx(1500, rel=0.05)
    assert expected[0] == 0


def test_a_step_that_is_heavy_for_all_is_nobodys_loss() -> None:
    grid = healthy()
    grid[4:9] *= 3
    assert per_rank(beyond_each(grid).expected).max() < 100


@pytest.mark.parametrize(
    ("n_events", "is_expected"), [(1, False), (3, False), (4, True), (10, True)]
)
def test_what_happens_now_and_then_counts_from_a_fifth_of_the_steps_on(
    n_events: int, is_expected: bool
) -> None:
    grid = healthy()
    grid[:n_events, 2, 1] += 4000
    removed = beyond_each(grid)
    assert (per_rank(removed.expected)[2] > 400) == is_expected
    assert per_rank(removed.high)[2] > 4000 * n_events / STEPS * 0.9
    if n_events < STEPS // 4:
        assert per_rank(removed.low)[2] == 0


def test_alone_there_is_nobody_to_be_like() -> None:
    removed = beyond_each(healthy()[:, :1])
    assert removed.high.max() == 0


def test_a_slow_half_becomes_like_the_others() -> None:
    grid = healthy()
    is_part = np.arange(RANKS) < 5  # most of the ranks: only the others tell what is usual
    grid[:, is_part] += 200
    removed = beyond_others(grid, is_part)
    assert ordered(removed)
    assert per_rank(removed.expected)[:5] == pytest.approx([1000] * 5, rel=0.1)
    assert per_rank(removed.high)[5:].max() == 0


@pytest.mark.parametrize("is_part", [np.ones(RANKS, bool), np.zeros(RANKS, bool)])
def test_without_others_nothing_goes(is_part: np.ndarray) -> None:
    assert beyond_others(healthy(), is_part).high.max() == 0


def test_against_its_own_past_only_the_slow_steps_lose() -> None:
    grid = healthy()
    grid[12:] += 500
    removed = beyond_own(grid)
    assert per_rank(removed.expected).min() > 0.9 * 500 * OPS * 8 / STEPS
    assert removed.expected[:12].sum() < 0.01 * removed.expected[12:].sum()
    still = healthy()
    still += 500  # slow from the first step to the last: its own usual
    assert beyond_own(still).expected.max() < 100


def test_a_heavy_part_becomes_like_the_middle_one() -> None:
    totals = healthy()[:, :4, 0].copy()
    totals[:, 2] *= 1.5
    removed = beyond_totals(totals)
    assert ordered(removed)
    assert removed.expected[:, 2].mean() == pytest.approx(500, rel=0.05)
    assert removed.expected[:, [0, 1, 3]].mean() < 10
