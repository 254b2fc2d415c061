"""A benchmark twice as slow is told; one row too short to judge is not judged."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from comminsight.analysis.bench_statistics import bench_row
from comminsight.diagnosis.bench_compare import compare_records
from comminsight.model.bench import BenchRecord, Change, Decision, Metrics


def record(times: list[float]) -> BenchRecord:
    return BenchRecord(
        workload_id="w", label="l", backend="gloo", dtype="float32", world_size=2, warmup=0,
        repeats=len(times), algorithm_requested="Auto", decision=Decision.USE_TIMES,
        metrics=Metrics(rows=(bench_row("all_reduce", 1000, [times, times]),)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("factor", "n", "change"),
    [(8.0, 20, Change.SLOWER), (0.125, 20, Change.FASTER), (2.0, 20, Change.SAME),
     (1.0, 20, Change.SAME),
     (8.0, 4, Change.NO_VERDICT)],
)  # fmt: skip
def test_change(factor: float, n: int, change: Change) -> None:
    noise = np.random.default_rng(1).lognormal(0, 0.1, 2 * n).tolist()
    (row,) = compare_records(record(noise[:n]), record([factor * one for one in noise[n:]])).rows
    assert row.change is change


@pytest.mark.parametrize(
    ("controls", "change"),
    [((), Change.SAME), ((1.05, 0.98, 1.0), Change.SAME), ((1.05, 0.98, 1.0, 1.0), Change.SLOWER),
     ((1.05, 0.4, 1.0, 1.0), Change.SAME)],
)  # fmt: skip
def test_launches_of_one_state_say_how_far_launches_differ(
    controls: tuple[float, ...], change: Change
) -> None:
    before, after = record(NOISE), record([2.0 * one for one in NOISE])
    alike = [record([factor * one for one in NOISE]) for factor in controls]
    (found,) = compare_records(before, after, alike).rows
    assert found.change is change
    other = [*alike, replace(before, workload_id="v")]
    assert compare_records(before, after, other).differs == ("workload_id",)


@pytest.mark.parametrize(("n_lost", "change"), [(9, Change.SLOWER), (10, Change.NO_VERDICT)])
def test_a_launch_without_its_cores_accuses_nobody(n_lost: int, change: Change) -> None:
    """The scheduler's milliseconds stand close together: no noise tells them."""
    before = record([0.01 + 0.0001 * one for one in range(20)])
    after = record([8.0 + 0.001 * one for one in range(20)])
    (row,) = after.metrics.rows
    after = replace(after, metrics=Metrics(rows=(replace(row, waiting_repeats=n_lost),)))
    for pair in ((before, after), (after, before)):
        (found,) = compare_records(*pair).rows
        wanted = Change.FASTER if pair[0] is after and change is Change.SLOWER else change
        assert found.change is wanted


NOISE = np.random.default_rng(2).lognormal(0, 0.1, 20).tolist()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"workload_id": "v"}, "workload_id"),
        ({"algorithm_requested": "Ring"}, "algorithm_requested"),
        ({"warmup": 5}, "warmup"), ({"decision": Decision.DISCARD}, "failure"),
        ({"environment_profile": {"torch": "2"}}, "environment_profile.torch"),
    ],
)  # fmt: skip
def test_unlike_records_are_not_judged(other: dict[str, object], named: str) -> None:
    slower = replace(record([3 * one for one in NOISE]), **other)
    found = compare_records(record(NOISE), slower)
    assert (found.differs, found.rows, found.has_regression) == ((named,), (), False)


def test_a_row_of_one_record_alone_is_named() -> None:
    first = record(NOISE)
    more = (*first.metrics.rows, bench_row("broadcast", 9, [NOISE, NOISE]))
    second = replace(first, metrics=Metrics(rows=more))
    for pair in ((first, second), (second, first)):
        found = compare_records(*pair)
        assert [(one.collective, one.payload_bytes_per_rank) for one in found.dropped] == [
            ("broadcast", 9)
        ]
        assert len(found.rows) == 1


@pytest.mark.parametrize("seed", range(20))
def test_a_launch_that_wanders_accuses_nobody(seed: int) -> None:
    """A launch that became slower by itself says nothing of a change smaller than that."""
    rng = np.random.default_rng(seed)
    drifting = (rng.lognormal(0, 0.02, 20) * np.linspace(1.0, 1.8, 20)).tolist()
    found = compare_records(record(NOISE), record(drifting))
    assert not found.has_regression
