"""A benchmark twice as slow is told; one row too short to judge is not judged."""

from __future__ import annotations

import numpy as np
import pytest

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
    [(2.0, 20, Change.SLOWER), (0.5, 20, Change.FASTER), (1.0, 20, Change.SAME),
     (2.0, 4, Change.NO_VERDICT)],
)  # fmt: skip
def test_change(factor: float, n: int, change: Change) -> None:
    noise = np.random.default_rng(1).lognormal(0, 0.1, 2 * n).tolist()
    (row,) = compare_records(record(noise[:n]), record([factor * one for one in noise[n:]])).rows
    assert row.change is change
