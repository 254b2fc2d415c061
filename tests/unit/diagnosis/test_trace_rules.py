"""The rules on traces stay silent on healthy jobs of any jitter, and the sums of exposure hold."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.analysis.exposure import exposures
from comminsight.diagnosis.job import judge_job
from comminsight.model.activity import Activity
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause
from tests.builders.activities import comm, compute


def healthy(seed: int) -> tuple[Activity, ...]:
    """Compute on all ranks, with all-reduces hidden behind most of it; clocks far apart."""
    rng = np.random.default_rng(seed)
    n_ranks, found, begin = int(rng.integers(2, 9)), [], 0.0
    clocks = rng.uniform(-1e5, 1e5, n_ranks)
    for step in range(12):
        for _ in range(6):
            came = begin + rng.uniform(20, 40, n_ranks)
            end = float(came.max() + rng.uniform(50, 100))
            for rank in range(n_ranks):
                ahead = float(clocks[rank])
                jitter = float(rng.uniform(0, 5))
                found.append(compute(rank, begin + ahead, 1000, step=step))
                found.append(
                    comm(rank, Op.ALL_REDUCE, float(came[rank]) + ahead,
                         end - float(came[rank]) + jitter, step=step, size_bytes=1 << 20)
                )  # fmt: skip
            begin += 1010
    return tuple(found)


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_trace_accuses_nobody(seed: int) -> None:
    verdicts = judge_job(JobEvidence(activities=healthy(seed)))
    assert [verdict.cause for verdict in verdicts] == [Cause.NO_VERDICT]


@pytest.mark.parametrize("seed", range(5))
def test_exposed_and_overlapped_make_all_communication(seed: int) -> None:
    found = exposures(healthy(seed))
    assert found
    for one in found:
        assert one.exposed_ns + one.overlapped_ns == one.communication_ns
