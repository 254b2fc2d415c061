"""Simulated jobs of every kind, with the template that must win on each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from comminsight.model.step import StepSummary
from comminsight.model.views import TemplateScore
from comminsight.semantics.engine import SessionEngine
from comminsight.semantics.template import Template
from comminsight.sim import (
    SimLayout,
    SimRank,
    ddp_accumulated_layout,
    ddp_layout,
    fsdp1_layout,
    fsdp2_accumulated_layout,
    fsdp2_layout,
    megatron_core_layout,
    megatron_layout,
    moe_layout,
    pipeline_layout,
    serving_ep_layout,
    serving_layout,
    tensor_layout,
    zero_layout,
)
from comminsight.sim.program import BETWEEN_STEPS, PHASES

NONE = ""


@dataclass(frozen=True)
class Job:
    """A layout and what must come of it; ``abstains`` are pipeline stages that get no steps."""

    layout: SimLayout
    template: str
    abstains: tuple[int, ...] = ()

    def expected(self, rank: int) -> str:
        """The template that must win on a rank."""
        return NONE if self.layout.place(rank).pp in self.abstains else self.template


def with_sp(layout: SimLayout) -> SimLayout:
    return replace(layout, has_sequence_parallel=True)


JOBS = {
    "ddp": Job(ddp_layout(4), "ddp"),
    "ddp, set-up": Job(replace(ddp_layout(4), has_startup=True), "ddp"),
    "ddp, accumulation": Job(ddp_accumulated_layout(4), "ddp"),
    "fsdp1": Job(fsdp1_layout(4), "fsdp1"),
    "fsdp1, unclipped": Job(fsdp1_layout(4, has_clipping=False), "fsdp2-unclipped"),
    "fsdp1, unclipped, every microbatch": Job(
        replace(fsdp1_layout(4, has_clipping=False), microbatches=3), NONE
    ),
    "fsdp1, every microbatch": Job(replace(fsdp1_layout(4), microbatches=3), "fsdp1"),
    "fsdp2": Job(fsdp2_layout(4), "fsdp2"),
    "fsdp2, accumulation": Job(fsdp2_accumulated_layout(4), "fsdp2"),
    "fsdp2, accumulation, unclipped": Job(
        fsdp2_accumulated_layout(4, has_clipping=False), "fsdp2-unclipped"
    ),
    "zero1": Job(zero_layout(1, 4), "zero1"),
    "zero1, bf16": Job(zero_layout(1, 4, is_fp16=False), "zero1"),
    "zero2": Job(zero_layout(2, 4), "zero2"),
    "zero2, bf16": Job(zero_layout(2, 4, is_fp16=False), "zero2"),
    "zero3": Job(zero_layout(3, 4), "zero3"),
    "zero3, bf16": Job(zero_layout(3, 4, is_fp16=False), "fsdp1"),
    "tp pp dp": Job(megatron_layout(2, 2, 2), "tp-pp-dp"),
    "tp pp dp, a number per microbatch": Job(
        replace(megatron_layout(2, 2, 2), has_batch_metric=True), "tp-pp-dp"
    ),
    "tp pp dp, gradients last": Job(
        replace(megatron_layout(2, 2, 2), has_late_gradients=True), "tp-pp-dp"
    ),
    "tp pp dp, gradients last, a number per microbatch": Job(
        replace(megatron_layout(2, 2, 2), has_late_gradients=True, has_batch_metric=True), NONE
    ),
    "tp pp": Job(megatron_layout(2, 2, 1), "tp-pp-dp"),
    "tp pp, a number per microbatch": Job(
        replace(megatron_layout(2, 2, 1), has_batch_metric=True), NONE
    ),
    "moe": Job(moe_layout(8, 4), "tp-pp-dp"),
    "moe, a number per microbatch": Job(
        replace(moe_layout(8, 4), microbatches=3, has_batch_metric=True), "tp-pp-dp"
    ),
    "megatron": Job(megatron_core_layout(2, 2, 2), "megatron"),
    "megatron, sp, dist opt": Job(
        with_sp(megatron_core_layout(2, 2, 2, has_dist_opt=True)), "megatron"
    ),
    "megatron, fp16": Job(replace(megatron_core_layout(2, 2, 1), is_fp16=True), "megatron"),
    "megatron, interleaved": Job(
        with_sp(megatron_core_layout(2, 4, 1, microbatches=8, chunks=2, has_dist_opt=True)),
        "megatron",
    ),
    "megatron, dp and dist opt": Job(megatron_core_layout(1, 1, 4, has_dist_opt=True), "megatron"),
    "megatron, cp": Job(megatron_core_layout(1, 1, 4, cp=2), "megatron"),
    "megatron, cp pp": Job(megatron_core_layout(1, 2, 4, cp=2, has_dist_opt=True), "megatron"),
    "megatron, ep edp": Job(megatron_core_layout(1, 1, 4, ep=2, has_dist_opt=True), "megatron"),
    "megatron, tp pp ep": Job(megatron_core_layout(2, 2, 4, ep=2, has_dist_opt=True), "megatron"),
    "pp": Job(pipeline_layout(4), "pipeline", abstains=(3,)),
    "pp, interleaved": Job(pipeline_layout(4, microbatches=8, chunks=2), "pipeline"),
    "pp, two stages": Job(pipeline_layout(2), "pipeline", abstains=(1,)),
    "tp": Job(tensor_layout(4), NONE),
    "tp, two jobs": Job(tensor_layout(2, dp=2), NONE),
    "tp sp": Job(tensor_layout(4, has_sequence_parallel=True), "tp-sp"),
    "tp sp, two jobs": Job(tensor_layout(2, dp=2, has_sequence_parallel=True), "tp-sp"),
    "serving": Job(serving_layout(2), "serving-tp"),
    "serving, replicas": Job(serving_layout(2, 2), "serving-tp"),
    "serving, tp ep": Job(serving_ep_layout(2, 2), "serving-ep"),
    "serving, ep": Job(serving_ep_layout(1, 4), "serving-ep"),
}

BETWEEN = {  # something that is no step lies between the steps
    "ddp, evaluation": Job(replace(ddp_accumulated_layout(4), eval_every=4), "ddp"),
    "fsdp1, evaluation": Job(replace(fsdp1_layout(4), eval_every=4), "fsdp1"),
    "fsdp2, evaluation": Job(replace(fsdp2_accumulated_layout(4), eval_every=4), "fsdp2"),
    "zero1, evaluation": Job(replace(zero_layout(1, 4), eval_every=4), "zero1"),
    "zero2, evaluation": Job(replace(zero_layout(2, 4), eval_every=4), "zero2"),
    "zero3, evaluation": Job(replace(zero_layout(3, 4), eval_every=4), "zero3"),
    "megatron, evaluation": Job(replace(megatron_core_layout(2, 2, 2), eval_every=4), "megatron"),
    "megatron, evaluation, no dp": Job(
        replace(megatron_core_layout(2, 2, 1), eval_every=4), "megatron"
    ),
    "megatron, evaluation, tp": Job(
        replace(with_sp(megatron_core_layout(4, 1, 1)), eval_every=3, eval_batches=5), "megatron"
    ),
    "megatron, evaluation, interleaved": Job(
        replace(
            megatron_core_layout(2, 4, 1, microbatches=8, chunks=2, has_dist_opt=True),
            eval_every=4,
            eval_batches=8,
        ),
        "megatron",
    ),
    "megatron, evaluation, experts": Job(
        replace(megatron_core_layout(2, 2, 4, ep=2, has_dist_opt=True), eval_every=3), "megatron"
    ),
    "tp pp dp, evaluation": Job(replace(megatron_layout(2, 2, 2), eval_every=4), "tp-pp-dp"),
    "tp pp dp, evaluation, a number per batch": Job(
        replace(megatron_layout(2, 2, 2), eval_every=4, eval_batches=3, has_batch_metric=True),
        "tp-pp-dp",
    ),
    "tp pp dp, evaluation, gradients last": Job(
        replace(megatron_layout(2, 2, 2), eval_every=4, has_late_gradients=True), "tp-pp-dp"
    ),
    "tp pp, evaluation": Job(replace(megatron_layout(2, 2, 1), eval_every=6), "tp-pp-dp"),
    "moe, evaluation": Job(replace(moe_layout(8, 4), eval_every=4), "tp-pp-dp"),
    "moe, evaluation, a number per batch": Job(
        replace(moe_layout(8, 4), microbatches=2, eval_every=3, has_batch_metric=True), "tp-pp-dp"
    ),
    "tp pp dp, checkpoint": Job(replace(megatron_layout(2, 2, 2), checkpoint_every=3), "tp-pp-dp"),
    "ddp, checkpoint": Job(replace(ddp_accumulated_layout(4), checkpoint_every=3), "ddp"),
    "fsdp2, checkpoint": Job(replace(fsdp2_accumulated_layout(4), checkpoint_every=3), "fsdp2"),
    "zero1, checkpoint": Job(replace(zero_layout(1, 4), checkpoint_every=3), "zero1"),
    "megatron, checkpoint": Job(
        replace(megatron_core_layout(2, 2, 2), checkpoint_every=3), "megatron"
    ),
    "serving, ends apart": Job(replace(serving_layout(2, 3), steps_short=(0, 5, 1)), "serving-tp"),
    "tp sp, ends apart": Job(
        replace(tensor_layout(2, dp=2, has_sequence_parallel=True), steps_short=(3, 0)), "tp-sp"
    ),
}


@dataclass(frozen=True)
class Found:
    """What the engine made of one rank."""

    template: str
    steps: list[StepSummary]
    scores: tuple[TemplateScore, ...]


def found_on(rank: SimRank, templates: tuple[Template, ...]) -> Found:
    """Steps and scores of one simulated rank."""
    engine = SessionEngine(templates, identity=rank.session)
    engine.add_comms(rank.comms)
    steps = engine.push(rank.records) + engine.finish()
    return Found(engine.state.template, steps, engine.selection)


def true_bounds(rank: SimRank) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """(first, last) op of each true step, each as (comm_index, op_seq)."""
    log = rank.log
    outside = np.array([phase in BETWEEN_STEPS for phase in PHASES])[log.phases]
    bounds = []
    for step in range(int(log.steps.max()) + 1):
        own = log.ops[(log.steps == step) & ~outside]
        ends = own[[0, -1]]
        first, last = zip(ends["comm_index"].tolist(), ends["op_seq"].tolist(), strict=True)
        bounds.append((first, last))
    return bounds


def found_bounds(steps: list[StepSummary]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The same of the steps that were found."""
    return [
        ((s.first.comm_index, s.first.op_seq), (s.last.comm_index, s.last.op_seq)) for s in steps
    ]
