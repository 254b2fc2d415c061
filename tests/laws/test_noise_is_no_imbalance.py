"""A long pause on a busy machine is no imbalance: noisy healthy runs of few ranks and steps in
which one rank stays away once for long, and the others wait for it.

The ranks of one host share two to four cores: whoever shares one with others is slower all along,
and all who share it are slower alike. Nobody is told as a straggler who is not.
120 runs by default, 2,400 with ``COMMINSIGHT_FULL=1``.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

from comminsight.analysis.measures import straggler_measures
from comminsight.diagnosis.speed import judge_speed
from comminsight.model.verdict import Cause, Coverage, Verdict
from comminsight.sim import Fault, Jitter, LateRank, megatron_layout, simulate
from tests.laws.test_healthy_simulated import rebuilt

IS_FULL = os.environ.get("COMMINSIGHT_FULL") == "1"
N_RUNS = 2400 if IS_FULL else 120
ALIKE = 0.002  # how much the ranks' own speeds differ
LONG_NS = 5_000_000_000
LAYOUTS = (
    megatron_layout(2, 2, 1),
    megatron_layout(2, 1, 2),
    megatron_layout(1, 2, 2),
    megatron_layout(1, 2, 3),
    megatron_layout(2, 2, 2),
)


def judged(seed: int) -> tuple[Verdict, frozenset[int]]:
    """The verdict, and the ranks that are slower all along than another one by what is planted;
    all of them where every rank has a speed of its own."""
    rng = np.random.default_rng(seed)
    layout = LAYOUTS[seed % len(LAYOUTS)]
    n_ranks, steps = layout.world_size, int(rng.integers(9, 15))
    paused, step = int(rng.integers(n_ranks)), int(rng.integers(2, steps - 1))
    faults: list[Fault] = [LateRank(paused, extra_ns=LONG_NS, from_step=step, until_step=step + 1)]
    core = rng.integers(rng.integers(2, 5), size=n_ranks)
    n_on_core = np.bincount(core)[core]
    slower_ns = rng.uniform(0, 10_000_000)
    faults += [
        LateRank(rank, extra_ns=round(slower_ns * (n - 1)))
        for rank, n in enumerate(n_on_core.tolist())
        if n > 1
    ]
    jitter = Jitter(
        sigma=float(rng.uniform(0.02, 0.3)),
        rank_sigma=float(rng.choice([ALIKE, 0.1])),
        hiccup_rate=float(rng.uniform(0, 0.05)),
        transfer_sigma=0.3,
    )
    trace = rebuilt(simulate(layout, steps=steps, seed=seed, faults=faults, jitter=jitter))
    seen = Coverage(ranks_expected=n_ranks, ranks_seen=n_ranks, records_read=10_000)
    verdict = judge_speed(straggler_measures(trace), trace.communicators, seen)
    is_slower = n_on_core > (n_on_core.min() if jitter.rank_sigma == ALIKE else 0)
    return verdict, frozenset(np.flatnonzero(is_slower).tolist())


@pytest.mark.slow
def test_a_long_pause_on_shared_cores_is_no_imbalance(capsys: pytest.CaptureFixture[str]) -> None:
    causes: Counter[str] = Counter()
    accused, wrong = [], []
    for seed in range(N_RUNS):
        verdict, slower = judged(seed)
        causes[verdict.cause.value] += 1
        if verdict.cause is Cause.LOAD_IMBALANCE:
            accused.append((seed, verdict.culprits))
        if not slower.issuperset(verdict.culprits):
            wrong.append((seed, verdict.culprits))
    with capsys.disabled():
        print(f"\nlong pause: {len(accused)} of {N_RUNS} told as imbalance; {dict(causes)}")
    assert accused == []
    assert wrong == []
