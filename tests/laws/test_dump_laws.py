"""Dumps of a training job that one rank holds up: whatever part of them is at hand, whoever is
named is that rank."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.diagnosis.job import judge_job
from comminsight.errors import InputError
from comminsight.pipeline.job_evidence import gather
from tests.builders.flight_recorder import parallel_job, write_dumps

SHAPES = ((1, 2, 2), (2, 2, 1), (2, 2, 2), (1, 4, 1), (4, 1, 2), (2, 1, 4), (1, 3, 2))


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 10_000),
    is_device=st.booleans(),
    run_ahead=st.sampled_from([1, 3, 6, 12]),
    n_lost=st.integers(0, 2),
    ring=st.sampled_from([10_000, 40, 25]),
    is_only_active=st.booleans(),
    is_json=st.booleans(),
)
def test_nobody_but_the_rank_that_stopped_is_named(
    shape: tuple[int, int, int], seed: int, is_device: bool, run_ahead: int, n_lost: int,
    ring: int, is_only_active: bool, is_json: bool,
) -> None:  # fmt: skip
    job = parallel_job(*shape, n_microbatches=1 + seed % 3, run_ahead=run_ahead)
    n_ranks = len(job.programs)
    origin = seed % n_ranks
    at = seed % len(job.programs[origin])
    is_sent = job.programs[origin][at].op == "send"  # what never left its GPU is received by nobody
    stops = job.device_stops if is_device and not is_sent else job.host_stops
    stops[origin] = at
    kept = [rank for rank in range(n_ranks) if rank not in {seed % n_ranks, seed // 7 % n_ranks}
            or n_lost == 0 or (n_lost == 1 and rank == origin)]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        write_dumps(
            Path(folder), job.play(), ranks=kept, is_json=is_json, ring=ring,
            is_only_active=is_only_active,
        )  # fmt: skip
        try:
            evidence = gather([Path(folder)], world_size=n_ranks).job
        except InputError:
            return  # no dump is left that names its rank
    for verdict in judge_job(evidence):
        assert set(verdict.culprits) <= {origin}
        assert not verdict.culprits or origin in kept
