import tracemalloc

import numpy as np
import pytest

from comminsight.analysis.changepoint import find_shift


def test_onset_and_levels_of_a_shift() -> None:
    shift = find_shift(np.array([5.0, 6, 5, 6, 5, 6, 5, 6, 9, 10, 9, 10, 9, 10]))
    assert shift is not None
    assert (shift.onset, shift.before, shift.after) == (8, 5.5, 9.5)
    assert shift.p_value == 0.001


@pytest.mark.parametrize(
    "series",
    [
        [],
        [1, 2, 3],
        [7.0] * 30,
        [5, 6, 5, 6, 5, 6, 5, 90, 5, 6, 5, 6, 5, 6],  # one spike is no shift
        [1, 9] * 10,
    ],
)
def test_no_shift(series: list[float]) -> None:
    assert find_shift(np.array(series)) is None


def test_the_answer_is_deterministic() -> None:
    series = np.random.default_rng(3).normal(size=40) + np.arange(40) // 20
    assert find_shift(series) == find_shift(series)


@pytest.mark.parametrize("draw", ["normal", "standard_exponential", "standard_cauchy"])
def test_false_alarm_rate_is_held(draw: str) -> None:
    rng = np.random.default_rng(11)
    n, alarms = 200, 0
    for _ in range(n):
        alarms += (
            find_shift(getattr(rng, draw)(size=40), false_alarm_rate=0.05, n_orders=199) is not None
        )
    # 0.05 * 200 = 10 expected at most; 20 is beyond the 99.8 % quantile of Binomial(200, 0.05)
    assert alarms < 20


def test_onset_is_close_under_noise() -> None:
    rng = np.random.default_rng(5)
    onsets = []
    for _ in range(50):
        shift = find_shift(rng.normal(size=40) + 3.0 * (np.arange(40) >= 20))
        assert shift is not None
        onsets.append(shift.onset)
    assert np.mean(np.abs(np.array(onsets) - 20) <= 1) >= 0.9


def test_a_long_series_needs_no_memory_of_its_orders():
    values = np.arange(20_000) % 7 + (np.arange(20_000) >= 9_000)
    tracemalloc.start()
    shift = find_shift(values)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert abs(shift.onset - 9_000) < 50
    assert peak_bytes < 100_000_000
