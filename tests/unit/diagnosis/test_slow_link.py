"""A slow transfer of a run, and the place at which the bandwidth of its own paths points."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from comminsight.analysis.device_clock import lower_clock
from comminsight.diagnosis.rules.recorded import recorded_rule
from comminsight.diagnosis.slow_link import placed
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import CounterSeries, Link, LinkMap
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause, ChainLevel, Confidence, Coverage, Verdict

N_RANKS = 6


def verdict(cause: Cause, victims: tuple[int, ...]) -> Verdict:
    return Verdict(
        rule="slow_link", cause=cause, confidence=Confidence.LOW, victims=victims,
        coverage=Coverage(ranks_expected=N_RANKS, ranks_seen=N_RANKS),
        measures={"step_cost_ns": 5.0},
    )  # fmt: skip


def rows(slow_rank: int) -> list[BandwidthRow]:
    pairs = [(a, (a + step) % N_RANKS) for step in (1, 2) for a in range(N_RANKS)]
    return [
        BandwidthRow(
            op=Op.SEND, size_bytes=1 << 20, ranks=pair, busbw_gbs=3.0 if slow_rank in pair else 9.0
        )
        for pair in pairs
    ]


@pytest.mark.parametrize(
    ("cause", "victims", "slow_rank", "culprits", "left", "confidence"),
    [
        (Cause.SLOW_LINK, (1, 2, 3, 4), 2, (2,), (1, 3, 4), Confidence.MEDIUM),
        (Cause.SLOW_LINK, (3, 4), 2, (), (3, 4), Confidence.LOW),  # not among the victims
        (Cause.SLOW_LINK, (1, 2, 3), -1, (), (1, 2, 3), Confidence.LOW),  # no path is slow
        (Cause.COMPUTE_STRAGGLER, (1, 2, 3), 2, (), (1, 2, 3), Confidence.LOW),
    ],
)
def test_the_place_is_taken_where_both_agree(
    cause: Cause,
    victims: tuple[int, ...],
    slow_rank: int,
    culprits: tuple[int, ...],
    left: tuple[int, ...],
    confidence: Confidence,
) -> None:
    found = placed((verdict(cause, victims),), lambda: rows(slow_rank))[0]
    assert (found.culprits, found.victims, found.confidence) == (culprits, left, confidence)
    assert found.measures["step_cost_ns"] == 5.0
    assert ("busbw_gbs" in found.measures) == bool(culprits)


def test_the_bandwidth_is_computed_for_slow_links_only() -> None:
    healthy = verdict(Cause.HEALTHY, ())
    assert placed((healthy,), lambda: pytest.fail("computed")) == (healthy,)


def clock(host: str, device: str, values: list[float]) -> CounterSeries:
    return CounterSeries(
        host=host, device=device, counter="sm_clock_mhz", unit="MHz",
        times_ns=tuple(10 * i for i in range(len(values))), values=tuple(values),
    )  # fmt: skip


STEADY, FALLEN, LOW = [1980.0] * 40, [1980.0] * 20 + [1500.0] * 20, [1500.0] * 40


@pytest.mark.parametrize(
    ("own", "n_peers", "expected"),
    [
        (STEADY, 3, None),
        (FALLEN, 0, (1500.0, 1980.0, 200)),
        (LOW, 3, (1500.0, 1980.0, 0)),
        (LOW, 2, None),  # too few to tell what is usual
        ([1980.0, 1960.0] * 20, 3, None),
    ],
)
def test_a_lower_clock(
    own: list[float], n_peers: int, expected: tuple[float, float, int] | None
) -> None:
    series = [clock("h.lan", "gpu0", own)]
    series += [clock("h", f"gpu{i + 1}", STEADY) for i in range(n_peers)]
    found = lower_clock(series, "h", "gpu0")
    assert (found and (found.value, found.usual, found.since_ns)) == expected
    assert lower_clock(series, "h", "gpu9") is None


@pytest.mark.parametrize(
    ("whole", "ports", "named"),
    [
        (None, ("mlx5_3",), "h1/mlx5_3"),
        (frozenset({2}), ("mlx5_3",), "h1/mlx5_3"),
        (frozenset({1}), ("mlx5_3",), ""),  # the rank may use another one too
        (None, ("mlx5_3", "mlx5_4"), ""),
    ],
)
def test_the_only_port_of_the_slow_rank(
    whole: frozenset[int] | None, ports: tuple[str, ...], named: str
) -> None:
    own = replace(verdict(Cause.SLOW_LINK, (1, 3)), culprits=(2,))
    links = tuple(Link(global_rank=2, host="h1.lan", device=port) for port in ports)
    job = JobEvidence(told=(own,), links=LinkMap(links=links, whole_ranks=whole))
    (claim,) = recorded_rule(job)
    told = {link.value for link in claim.verdict.chain if link.level is ChainLevel.PORT}
    assert told == ({named} if named else set())
    assert bool(claim.verdict.next_actions) == bool(named)
