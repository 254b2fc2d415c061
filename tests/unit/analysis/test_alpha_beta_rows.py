"""Cost models of rows of bandwidth: what is fitted, what is not told."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.analysis.alpha_beta import crossover, fit_alpha_beta, observed_ratios
from comminsight.analysis.alpha_beta_rows import cost_fits, crossovers, tier_of
from comminsight.model.bandwidth import BandwidthRow, bus_factor
from comminsight.model.cost_model import GroupTier, NoFit
from comminsight.model.ops import Op

SIZES = [1 << k for k in range(12, 27, 2)]


def row(size: int, startup_ns: float, rate_gbs: float, **more: object) -> BandwidthRow:
    ranks, hosts = (0, 1, 2, 3), ("a",)
    time_ns = startup_ns + size / rate_gbs
    busbw_gbs = size / time_ns * bus_factor(Op.ALL_REDUCE, len(ranks))
    made = {"ranks": ranks, "hosts": hosts, "busbw_gbs": busbw_gbs, **more}
    return BandwidthRow(op=Op.ALL_REDUCE, size_bytes=size, **made)  # type: ignore[arg-type]


def noisy(
    startup_ns: float, rate_gbs: float, seed: int, repeats: int
) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.repeat(np.array(SIZES, float), repeats)
    noise = np.random.default_rng(seed).lognormal(0.0, 0.05, len(sizes))
    return sizes, (startup_ns + sizes / rate_gbs) * noise


@pytest.mark.parametrize(
    ("ranks", "hosts", "tier"),
    [
        ((0, 1), ("a",), GroupTier.NODE), ((0, 8), ("a", "b"), GroupTier.RAIL),
        ((0, 1, 8, 9), ("a", "b"), GroupTier.ACROSS), ((0, 1), (), GroupTier.UNKNOWN),
        ((), ("a",), GroupTier.UNKNOWN),
    ],
)  # fmt: skip
def test_tier(ranks: tuple[int, ...], hosts: tuple[str, ...], tier: GroupTier) -> None:
    assert tier_of(row(8, 1, 1, ranks=ranks, hosts=hosts)) is tier


def test_each_population_has_its_own_model() -> None:
    ways = {"RING": (20_000.0, 40.0), "TREE": (8_000.0, 10.0)}
    rows = [row(s, *ab, algorithm=name) for name, ab in ways.items() for s in SIZES]
    found = {fit.algorithm: fit for fit in cost_fits(rows)}
    for name, (startup_ns, rate_gbs) in ways.items():
        fit = found[name]
        assert (fit.no_fit, fit.tier, fit.n_ranks) == (None, GroupTier.NODE, 4)
        assert fit.startup_ns == pytest.approx(startup_ns, rel=1e-2)
        assert fit.rate_gbs == pytest.approx(rate_gbs, rel=1e-2)
        assert fit.half_bytes == pytest.approx(startup_ns * rate_gbs, rel=2e-2)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [([1024], NoFit.FEW_SIZES), ([1024, 4096, 1024], NoFit.FEW_SIZES),
     ([1000, 2000, 4000], NoFit.NARROW), ([1000, 2000, 8000], None)],
)  # fmt: skip
def test_sizes_that_span_too_little_have_no_model(sizes: list[int], reason: NoFit | None) -> None:
    fit = cost_fits([row(size, 5_000, 10.0) for size in sizes])[0]
    assert fit.no_fit is reason
    assert (fit.startup_ns > 0) is (reason is None)


def test_two_ways_cross_where_they_take_the_same_time() -> None:
    rows = [row(s, 20_000, 40.0, algorithm="RING") for s in SIZES]
    rows += [row(s, 8_000, 10.0, algorithm="TREE") for s in SIZES]
    one = crossovers(rows)[0]
    assert (one.below, one.above) == ("TREE", "RING")
    assert one.size_bytes == pytest.approx(12_000 / (1 / 10 - 1 / 40), rel=1e-2)
    assert one.low_bytes <= one.size_bytes <= one.high_bytes


@pytest.mark.parametrize(
    ("startup_ns", "rate_gbs"),
    [(30_000, 20.0), (20_000, 40.0), (20_001, 39.9), (5_000, 40.001)],
    ids=["faster at all sizes", "alike", "nearly alike", "beyond what was measured"],
)
def test_ways_that_do_not_cross(startup_ns: float, rate_gbs: float) -> None:
    rows = [row(s, 20_000, 40.0, algorithm="RING") for s in SIZES]
    rows += [row(s, startup_ns, rate_gbs, algorithm="TREE") for s in SIZES]
    assert crossovers(rows) == []


@pytest.mark.parametrize("repeats", [1, 8])
def test_intervals_hold_the_truth_as_often_as_they_say(repeats: int) -> None:
    held = np.zeros(3)
    n = 60
    truth = 12_000 / (1 / 10 - 1 / 40)
    for seed in range(n):
        points = noisy(20_000, 40.0, seed, repeats)
        fit = fit_alpha_beta(*points)
        cross = crossover(points, noisy(8_000, 10.0, 1000 + seed, repeats))
        assert fit is not None
        assert cross is not None
        held += [
            fit.latency_low_ns <= 20_000 <= fit.latency_high_ns,
            fit.rate_low_gbs <= 40.0 <= fit.rate_high_gbs,
            cross.low_bytes <= truth <= cross.high_bytes,
        ]
    assert (held / n > 0.8).all(), held / n


def test_measured_over_predicted() -> None:
    sizes = np.array(SIZES, float)
    fit = fit_alpha_beta(sizes, 20_000 + sizes / 40.0)
    assert fit is not None
    assert observed_ratios(fit, sizes, 2 * (20_000 + sizes / 40.0)) == pytest.approx(2.0, rel=1e-2)
