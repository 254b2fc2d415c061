"""Episodes in which durations run high: planted ones are found, spikes and noise are none."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.analysis.fail_slow import LASTING, MIN_NORMAL, Episode, SlowWatch, episodes_of


def noisy(n: int, seed: int, noise: float = 0.01) -> np.ndarray:
    return 1e9 * np.exp(noise * np.random.default_rng(seed).standard_normal(n))


@pytest.mark.parametrize(("ratio", "within"), [(0.05, 50), (0.10, 20), (0.5, 8), (4.0, 8)])
@pytest.mark.parametrize("onset", [MIN_NORMAL, 77, 300])
def test_a_slowdown_is_told_soon_and_its_onset_lies_where_it_began(
    onset: int, ratio: float, within: int
) -> None:
    series = noisy(400, seed=onset)
    series[onset:] *= 1 + ratio
    (found,) = episodes_of(series)
    assert (found.end, found.told_at - onset <= within) == (-1, True)
    assert abs(found.onset - onset) <= 3
    assert found.ratio == pytest.approx(ratio, rel=0.02, abs=0.02)


@pytest.mark.parametrize("length", [10, 40, 200])
@pytest.mark.parametrize("ratio", [0.15, 2.0])
def test_an_episode_that_ends_is_told_with_its_end(ratio: float, length: int) -> None:
    series = noisy(500, seed=length)
    series[100 : 100 + length] *= 1 + ratio
    (found,) = episodes_of(series)
    assert abs(found.onset - 100) <= 2
    assert abs(found.end - (100 + length)) <= 2
    assert found.ratio == pytest.approx(ratio, rel=0.1)


def test_two_levels_that_last_are_two_episodes() -> None:
    series = noisy(1200, seed=5)
    series[100:] *= 1.2
    series[100 + LASTING + 200 :] *= 1.2
    assert [round(e.onset, -1) for e in episodes_of(series)] == [100, 100 + LASTING + 200]


def test_noise_spikes_and_a_drift_are_no_slowdown() -> None:
    n_told, n_values = 0, 0
    for seed in range(10):
        random = np.random.default_rng(seed)
        spikes = (random.random(2000) < 0.02) * random.exponential(2e9, 2000)
        drift = np.linspace(1, 1.04, 2000)
        series = noisy(2000, seed, noise=0.02) * drift + spikes
        n_told += len(episodes_of(series))
        n_values += len(series)
    assert n_told <= n_values / 2000


def test_faster_is_no_slowdown_and_few_values_tell_nothing() -> None:
    series = noisy(300, seed=3)
    series[100:] *= 0.7
    assert episodes_of(series) == ()
    assert episodes_of([1.0] * (MIN_NORMAL - 1) + [9.0]) == ()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 300), st.floats(0, 1))
def test_a_watch_that_is_resumed_tells_the_same(seed: int, cut: int, ratio: float) -> None:
    series = noisy(300, seed)
    series[120:200] *= 1 + ratio

    def told(watch: SlowWatch, values: np.ndarray) -> list[Episode | None]:
        return [watch.push(value) for value in values.tolist()]

    first = SlowWatch()
    before = told(first, series[:cut])
    resumed = msgspec.msgpack.decode(msgspec.msgpack.encode(first), type=SlowWatch)
    assert before + told(resumed, series[cut:]) == told(SlowWatch(), series)
