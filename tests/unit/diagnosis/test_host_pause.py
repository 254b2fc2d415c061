"""Pauses that wander: told by their length, their turns and their cost; nothing told otherwise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from comminsight.diagnosis.host_pause import binomial_tail
from comminsight.model.verdict import Cause
from comminsight.sim import ddp_layout
from tests.builders.speed import judged, pauses_at

N_RANKS, STEPS = 8, 80
When = Callable[[np.random.Generator, int], list[tuple[int, int, float]]]


def by_turns(rng: np.random.Generator, step: int) -> list[tuple[int, int, float]]:
    return [(step, int(rng.integers(N_RANKS)), 40.0)] if step % 3 == 0 else []


def all_at_once(rng: np.random.Generator, step: int) -> list[tuple[int, int, float]]:
    return [(step, rank, 40.0) for rank in range(N_RANKS)] if step % 3 == 0 else []


def two_ranks_alone(rng: np.random.Generator, step: int) -> list[tuple[int, int, float]]:
    return [(step, step % 2, 40.0)] if step % 3 == 0 else []


def cheap(rng: np.random.Generator, step: int) -> list[tuple[int, int, float]]:
    return [(step, int(rng.integers(N_RANKS)), 4.0)] if step % 8 == 0 else []


@pytest.mark.parametrize(
    ("when", "is_told"),
    [(by_turns, True), (all_at_once, False), (two_ranks_alone, False), (cheap, False)],
)
@pytest.mark.parametrize("seed", range(3))
def test_only_what_wanders_and_costs_is_a_pause(when: When, is_told: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    faults = pauses_at([one for step in range(STEPS) for one in when(rng, step)])
    (verdict,) = judged(ddp_layout(N_RANKS), faults, steps=STEPS, seed=seed)
    assert (verdict.cause is Cause.HOST_PAUSE) == is_told
    assert verdict.culprits == ()


@pytest.mark.parametrize(
    ("k", "n", "p", "expected"), [(0, 5, 0.3, 1.0), (5, 5, 0.5, 1 / 32), (1, 2, 0.5, 0.75)]
)
def test_binomial_tail(k: int, n: int, p: float, expected: float) -> None:
    assert binomial_tail(k, n, p) == pytest.approx(expected)
