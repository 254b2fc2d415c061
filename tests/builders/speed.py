"""Simulated jobs as the rules on speed see them, with what a simulation does not have of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from comminsight.analysis.measures import straggler_measures
from comminsight.diagnosis.speed import judge_speed
from comminsight.model.measures import StragglerMeasures
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Coverage, Verdict
from comminsight.sim import Fault, LateRank, SimLayout, run_trace, simulate

MS = 1_000_000


def pauses_at(when: Sequence[tuple[int, int, float]]) -> list[Fault]:
    """A delay of one rank in one step for each (step, rank, milliseconds)."""
    return [
        LateRank(rank=rank, extra_ns=round(ms * MS), from_step=step, until_step=step + 1)
        for step, rank, ms in when
    ]


def measured(
    layout: SimLayout, faults: Sequence[Fault], *, steps: int, seed: int = 0
) -> tuple[StragglerMeasures, tuple[Communicator, ...]]:
    """The measures of a simulated run."""
    trace = run_trace(simulate(layout, steps=steps, seed=seed, faults=list(faults)))
    return straggler_measures(trace), trace.communicators


def judged(
    layout: SimLayout,
    faults: Sequence[Fault],
    *,
    steps: int,
    seed: int = 0,
    seen: Sequence[int] = (),
    moved_bytes: np.ndarray | None = None,
    input_wait_ns: np.ndarray | None = None,
) -> tuple[Verdict, ...]:
    """The verdict on a simulated run; ``seen`` are the ranks that left records, all by default;
    the rest are measures that the simulation has not, at least one row per step."""
    measures, communicators = measured(layout, faults, steps=steps, seed=seed)
    n = len(measures.steps)
    if moved_bytes is not None:
        measures = replace(measures, moved_bytes=moved_bytes[:n])
    if input_wait_ns is not None:
        measures = replace(measures, input_wait_ns=input_wait_ns[:n])
    world = layout.world_size
    missing = tuple(rank for rank in range(world) if seen and rank not in seen)
    coverage = Coverage(
        ranks_expected=world, ranks_seen=world - len(missing), ranks_missing=missing,
        records_read=1000,
    )  # fmt: skip
    return (judge_speed(measures, communicators, coverage),)
