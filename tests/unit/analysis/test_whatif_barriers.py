"""Groups that were left out of the recording: ranks meet, and no record shows it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from comminsight.analysis.alignment import align_steps
from comminsight.analysis.measures import run_sources
from comminsight.analysis.whatif import Gain, Part, WhatIf
from comminsight.analysis.whatif_barriers import BARRIER, behind_barriers, with_barriers
from comminsight.analysis.whatif_grid import LabelledStep
from comminsight.analysis.whatif_steps import labelled_run
from comminsight.model.trace import RunTrace
from comminsight.sim import Fault, LateRank, SimLayout, megatron_layout, run_trace, simulate

MS = 1_000_000
STEPS = 16
LAYOUTS = [
    megatron_layout(1, 4, 4), megatron_layout(1, 2, 4), megatron_layout(1, 2, 2),
    megatron_layout(2, 2, 2), megatron_layout(2, 2, 4),
]  # fmt: skip


def without_groups(trace: RunTrace, desc: str) -> RunTrace:
    """The run as if ops of these communicators had been filtered out of the recording."""
    hidden = [c.comm_id for c in trace.communicators if c.desc == desc]
    assert hidden
    ranks = []
    for rank in trace.ranks:
        keep = ~np.isin(rank.comm_ids[rank.ops["comm_index"]], hidden)
        ranks.append(dataclasses.replace(rank, ops=rank.ops[keep]))
    return dataclasses.replace(trace, ranks=tuple(ranks))


def recorded(layout: SimLayout, *faults: Fault, seed: int = 2, steps: int = STEPS) -> RunTrace:
    return run_trace(simulate(layout, steps=steps, seed=seed, faults=faults))


def labelled(trace: RunTrace) -> tuple[LabelledStep, ...]:
    return labelled_run(run_sources(trace), align_steps(trace)[1:]).steps


def gain_of(steps: tuple[LabelledStep, ...], n_ranks: int, rank: int) -> Gain:
    engine = WhatIf(steps, np.zeros(n_ranks, np.int64))
    assert engine.n_steps_left_out == 0
    return engine.gains([Part(ranks=np.arange(n_ranks) == rank)])[0]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda own: f"{own.tp} {own.pp} {own.dp}")
@pytest.mark.parametrize("late", [0, 1, 3])
def test_replicas_that_meet_unrecorded_are_found_and_the_bounds_hold_the_gain(
    layout: SimLayout, late: int
) -> None:
    whole = recorded(layout, LateRank(late, 60 * MS))
    truth = gain_of(labelled(whole), layout.world_size, late).expected_ns
    bare = labelled(without_groups(whole, "mesh_dp"))
    missed = gain_of(bare, layout.world_size, late)
    steps, n_barriers = with_barriers(bare)
    found = gain_of(steps, layout.world_size, late)
    assert n_barriers >= 1
    assert missed.expected_ns < 0.05 * truth
    assert found.low_ns <= truth <= found.high_ns
    assert found.expected_ns > 0.6 * truth


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda own: f"{own.tp} {own.pp} {own.dp}")
@pytest.mark.parametrize("late_ns", [0, 60 * MS])
def test_nothing_is_invented_where_all_is_recorded(layout: SimLayout, late_ns: int) -> None:
    steps = labelled(recorded(layout, LateRank(1, late_ns)))
    assert with_barriers(steps) == (steps, 0)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda own: f"{own.tp} {own.pp} {own.dp}")
def test_a_slow_rank_whose_peers_wait_for_nothing_makes_no_barrier(layout: SimLayout) -> None:
    # a healthy run without the group: all come at about the same time
    steps = labelled(without_groups(recorded(layout), "mesh_dp"))
    assert with_barriers(steps)[1] == 0


def test_few_steps_prove_no_barrier() -> None:
    whole = recorded(megatron_layout(2, 2, 2), LateRank(1, 60 * MS), steps=5)
    assert with_barriers(labelled(without_groups(whole, "mesh_dp")))[1] == 0


def test_the_op_behind_a_barrier_is_marked_and_all_else_is_kept() -> None:
    whole = recorded(megatron_layout(2, 2, 2), LateRank(1, 60 * MS))
    before = labelled(without_groups(whole, "mesh_dp"))
    after, n_barriers = with_barriers(before)
    assert n_barriers == 2  # one of each stage
    step, old = after[0], before[0]
    is_barrier = step.op_class == BARRIER
    assert np.count_nonzero(is_barrier) == 8
    assert (
        np.flatnonzero(behind_barriers(step)).tolist() == (np.flatnonzero(is_barrier) + 1).tolist()
    )
    assert step.program.start_ns[~is_barrier].tolist() == old.program.start_ns.tolist()
    assert step.link[~is_barrier].tolist() == old.link.tolist()
    assert (np.diff(step.program.bounds) == np.diff(old.program.bounds) + 1).all()
