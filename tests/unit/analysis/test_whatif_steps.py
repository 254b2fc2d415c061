"""What the ops of a step belong to, and the grids of ranks that run the same program."""

from __future__ import annotations

from functools import cache

import numpy as np

from comminsight.analysis.alignment import align_steps
from comminsight.analysis.measures import run_sources
from comminsight.analysis.whatif_grid import grids_of
from comminsight.analysis.whatif_stages import stages_beyond
from comminsight.analysis.whatif_steps import LabelledRun, LinkName, OpClass, labelled_run
from comminsight.model.ops import CommRole, Op
from comminsight.sim import megatron_layout, run_trace, simulate

LAYOUT = megatron_layout(1, 2, 2)  # ranks 0, 1: first stage; 2, 3: second


@cache
def run() -> LabelledRun:
    trace = run_trace(simulate(LAYOUT, steps=6, seed=1))
    return labelled_run(run_sources(trace), align_steps(trace))


def test_links_are_groups_and_directed_pairs() -> None:
    pairs = {(link.sender, link.receiver) for link in run().links if link.sender >= 0}
    assert pairs == {(0, 2), (2, 0), (1, 3), (3, 1)}
    assert len([link for link in run().links if link.sender < 0]) == 3  # two of dp, one of all


def test_both_halves_of_a_message_are_on_one_link() -> None:
    step = run().steps[0]
    link = run().links.index(LinkName(next(x.comm_id for x in run().links if x.sender == 0), 0, 2))
    ops = {run().op_classes[c].op for c in step.op_class[step.link == link].tolist()}
    assert ops == {Op.SEND, Op.RECV}
    assert set(step.program.rank[step.link == link].tolist()) == {0, 2}


def test_classes_are_role_and_op() -> None:
    assert OpClass(CommRole.DP, Op.ALL_REDUCE) in run().op_classes
    assert len(run().op_classes) == len(set(run().op_classes)) == 4


def test_collectives_and_receives_queue_and_sends_do_not() -> None:
    step = run().steps[0]
    for op_class, queues in zip(step.op_class.tolist(), step.is_queueing.tolist(), strict=True):
        assert queues == (run().op_classes[op_class].op is not Op.SEND)


def test_a_grid_holds_the_ranks_of_one_stage() -> None:
    every = grids_of(run().steps)
    assert sorted(grid.ranks.tolist() for grid in every.grids) == [[0, 1], [2, 3]]
    for grid in every.grids:
        assert grid.work_ns.shape[:2] == (6, 2)
        assert grid.work_ns.shape == grid.transfer_ns.shape


def test_a_heavy_stage_shrinks_and_the_other_does_not() -> None:
    heavy = megatron_layout(1, 2, 2, stage_weights=(1.0, 1.6))
    trace = run_trace(simulate(heavy, steps=12, seed=1))
    batches = grids_of(labelled_run(run_sources(trace), align_steps(trace)).steps).batches
    idle = [np.zeros(batch.work_ns.shape) for batch in batches]
    stage_of_rank = np.array([0, 0, 1, 1])
    goes = stages_beyond(batches, idle, stage_of_rank)[0][1]
    of_stage = stage_of_rank[batches[0].layout.rank]
    work_ns = batches[0].work_ns[:, of_stage == 1].sum()
    assert 0.25 < goes[:, of_stage == 1].sum() / work_ns < 0.4  # 1 - 1/1.6, but for the optimizer
    assert goes[:, of_stage == 0].sum() == 0


def test_without_stages_none_is_compared() -> None:
    batches = grids_of(run().steps).batches
    idle = [np.zeros(batch.work_ns.shape) for batch in batches]
    assert all(not goes.any() for goes in stages_beyond(batches, idle, np.zeros(4, np.int64)))
