"""Counters that rise, and whether the job became slower with them."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.analysis.counter_effect import (
    FALSE_ALARM_RATE,
    MIN_STEPS,
    Effect,
    counter_effect,
    rate_per_step,
)
from comminsight.analysis.counter_rise import increments, still_counters, unusual_rises
from comminsight.model.counters import CounterSeries, RankSteps

STEP_NS = 1_000_000_000


def series(
    per_step: np.ndarray, *, name: str = "out_of_sequence", host: str = "h"
) -> CounterSeries:
    """One sample at each step's edge."""
    values = np.concatenate([[7.0], 7.0 + np.cumsum(per_step)])
    return CounterSeries(
        host=host, device="d", counter=name, unit="1",
        times_ns=tuple(STEP_NS * i for i in range(len(values))), values=tuple(values.tolist()),
    )  # fmt: skip


def steps(communication_ns: np.ndarray) -> RankSteps:
    n = len(communication_ns)
    return RankSteps(
        global_rank=0, steps=tuple(range(100, 100 + n)),
        start_ns=tuple(STEP_NS * i for i in range(n)),
        end_ns=tuple(STEP_NS * (i + 1) for i in range(n)),
        communication_ns=tuple(int(value) for value in communication_ns),
    )  # fmt: skip


def burst(n: int, first: int, length: int) -> np.ndarray:
    rises = np.zeros(n)
    rises[first : first + length] = 500.0
    return rises


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1, 5, 5, 9), [4, 0, 4]),
        ((900, 20, 30), [20, 10]),  # reset
        ((4_294_967_290, 4, 10), [10, 6]),  # ran over 32 bits
        ((5,), []),
        ((float("nan"), 3, float("inf"), 7), [0, 0, 4]),  # samples that are no numbers
        ((float("-inf"), float("nan")), [0]),
        ((), []),
    ],
)
def test_increments_of_a_counter(values: tuple[float, ...], expected: list[float]) -> None:
    assert increments(values).tolist() == expected


def test_a_rise_is_spread_over_the_steps_between_two_samples() -> None:
    one = CounterSeries(
        host="h", device="d", counter="c", unit="1",
        times_ns=(0, 4 * STEP_NS, 6 * STEP_NS), values=(0.0, 8.0, 8.0),
    )  # fmt: skip
    found = rate_per_step(one, steps(np.ones(7)))
    assert found[:6].tolist() == [2, 2, 2, 2, 0, 0]
    assert np.isnan(found[6])  # after the last sample


@pytest.mark.parametrize(("first", "slower"), [(40, 1.3), (150, 2.0), (0, 1.1)])
def test_a_burst_with_longer_steps_slowed_them(first: int, slower: float) -> None:
    rng = np.random.default_rng(first)
    times = 1e6 * (1 + 0.02 * rng.standard_normal(240))
    times[first : first + 30] *= slower
    found = counter_effect(series(burst(240, first, 30)), [steps(times)])
    assert found.effect is Effect.SLOWED
    assert found.ratio == pytest.approx(slower - 1, abs=0.05)
    assert (found.first_step, found.last_step) == (100 + first, 129 + first)
    assert found.p_value <= FALSE_ALARM_RATE


def test_a_burst_without_longer_steps_did_nothing() -> None:
    times = 1e6 * (1 + 0.02 * np.random.default_rng(5).standard_normal(200))
    found = counter_effect(series(burst(200, 60, 25)), [steps(times)])
    assert found.effect is Effect.NONE
    assert found.n_risen == 25


def test_unrelated_bursts_are_called_an_effect_as_rarely_as_stated() -> None:
    """Also where the job drifts and has slow phases of its own."""
    n_trials, n_wrong = 400, 0
    for seed in range(n_trials):
        rng = np.random.default_rng(seed)
        walk = np.cumsum(rng.standard_normal(200)) * 1e4
        times = 5e6 + walk + 1e5 * rng.standard_normal(200)
        rises = burst(200, int(rng.integers(0, 170)), 20)
        n_wrong += counter_effect(series(rises), [steps(times)]).effect is Effect.SLOWED
    print(f"false alarms: {n_wrong} of {n_trials}")
    # 0.01 of 400, and three deviations of a binomial around it
    assert n_wrong <= FALSE_ALARM_RATE * n_trials + 3 * np.sqrt(FALSE_ALARM_RATE * n_trials)


@pytest.mark.parametrize(
    ("rises", "n", "effect", "reason"),
    [
        (np.zeros(200), 200, Effect.ABSENT, ""),
        (burst(60, 5, 10), 60, Effect.UNKNOWN, "effect.too_few_steps"),
        (burst(200, 5, 2), 200, Effect.UNKNOWN, "effect.no_contrast"),
        (np.full(200, 9.0), 200, Effect.UNKNOWN, "effect.no_contrast"),
    ],
)
def test_what_cannot_be_told(rises: np.ndarray, n: int, effect: Effect, reason: str) -> None:
    found = counter_effect(series(rises), [steps(np.linspace(1e6, 2e6, n))])
    assert (found.effect, found.reason) == (effect, reason)


def test_without_step_times_nothing_is_told() -> None:
    assert counter_effect(series(burst(MIN_STEPS, 3, 9)), []).reason == "effect.no_steps"


def test_a_rise_is_unusual_against_at_least_three_peers() -> None:
    def ports(n: int, of: int) -> list[CounterSeries]:
        return [series(burst(20, 3, n if i == 1 else 0), host=f"h{i}") for i in range(of)]

    named = frozenset({"out_of_sequence"})
    assert [(r.host, r.n, r.usual) for r in unusual_rises(ports(4, 4), named)] == [("h1", 2000, 0)]
    assert unusual_rises(ports(4, 3), named) == []
    assert unusual_rises(ports(0, 4), named) == []
    assert unusual_rises([series(burst(20, 3, 4), host=f"h{i}") for i in range(4)], named) == []
    assert still_counters(ports(0, 4), named) == (["out_of_sequence"], 4)
    assert still_counters(ports(1, 4), named) == ([], 0)
