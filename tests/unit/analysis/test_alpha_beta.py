"""Startup and rate of transfers from their times."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.analysis.alpha_beta import fit_alpha_beta, has_drifted

SIZES = np.array([1 << k for k in range(10, 27, 2)], float)


def times(
    latency_ns: float, rate_gbs: float, sizes: np.ndarray, noise: float = 0.0, seed: int = 0
) -> np.ndarray:
    rng = np.random.default_rng(seed)
    exact = latency_ns + sizes / rate_gbs
    return exact * (1 + noise * rng.standard_normal(len(sizes)))


@pytest.mark.parametrize(("latency_ns", "rate_gbs"), [(9_000.0, 12.0), (1e6, 0.1), (500.0, 400.0)])
def test_exact_times_give_back_what_made_them(latency_ns: float, rate_gbs: float) -> None:
    found = fit_alpha_beta(SIZES, times(latency_ns, rate_gbs, SIZES))
    assert found is not None
    assert found.latency_ns == pytest.approx(latency_ns, rel=1e-3)
    assert found.rate_gbs == pytest.approx(rate_gbs, rel=1e-3)
    assert found.time_ns(1 << 20) == pytest.approx(latency_ns + (1 << 20) / rate_gbs, rel=1e-3)


@pytest.mark.parametrize("seed", range(10))
def test_strays_do_not_pull_and_the_intervals_hold_the_truth(seed: int) -> None:
    sizes = np.repeat(SIZES, 12)
    measured = times(20_000, 5.0, sizes, noise=0.05, seed=seed)
    measured[seed::17] *= 20  # some transfers stood still for another reason
    found = fit_alpha_beta(sizes, measured)
    assert found is not None
    assert found.latency_ns == pytest.approx(20_000, rel=0.05)
    assert found.rate_gbs == pytest.approx(5.0, rel=0.05)
    assert found.latency_low_ns < found.latency_ns < found.latency_high_ns
    assert found.rate_low_gbs < found.rate_gbs < found.rate_high_gbs


def test_what_cannot_be_fitted() -> None:
    assert fit_alpha_beta(SIZES[:2], times(1_000, 1.0, SIZES[:2])) is None
    assert fit_alpha_beta(np.array([8.0, 8, 8, 8]), np.ones(4)) is None
    assert fit_alpha_beta(np.zeros(0), np.zeros(0)) is None


def test_no_negative_startup_and_no_negative_rate() -> None:
    falling = fit_alpha_beta(SIZES, np.linspace(9e6, 1e6, len(SIZES)))
    free = fit_alpha_beta(SIZES, SIZES / 3.0 - 50)
    assert falling is not None
    assert falling.rate_gbs == float("inf")
    assert free is not None
    assert free.latency_ns == 0.0


@pytest.mark.parametrize(
    ("latency_ns", "rate_gbs", "expected"),
    [(10_000, 8.0, (False, False)), (40_000, 8.0, (True, False)), (10_000, 2.0, (False, True))],
)
def test_a_drift_is_told_apart(
    latency_ns: float, rate_gbs: float, expected: tuple[bool, bool]
) -> None:
    sizes = np.repeat(SIZES, 8)
    before = fit_alpha_beta(sizes, times(10_000, 8.0, sizes, noise=0.03, seed=1))
    after = fit_alpha_beta(sizes, times(latency_ns, rate_gbs, sizes, noise=0.03, seed=2))
    assert before is not None
    assert after is not None
    assert has_drifted(before, after) == expected
