"""TP x PP x DP on torch's own pipeline schedules: 1F1B, and interleaved with ``--chunks`` above 1.

Layers are split and gradients reduced as in ``parallel3d``; who sends what and when is torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from comminsight.lab.context import JobContext
from comminsight.lab.parallel3d import (
    AXES,
    BATCH,
    mesh_shape,
    new_stage,
    reduce_gradients,
)
from comminsight.lab.tensor import squared_distance


class NotedStage(PipelineStage):
    """A stage that writes every pass into the truth file; ``step`` says of which step."""

    def __init__(self, context: JobContext, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._context = context
        self.step = 0

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **named: Any) -> Any:
        """One microbatch forward."""
        with self._noted("forward", fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *arguments, **named)

    def backward_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **named: Any) -> None:
        """One microbatch backward."""
        with self._noted("backward", bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, *arguments, **named)

    def _noted(self, phase: str, microbatch: int) -> Any:
        chunk = self.stage_index // self.group_size
        return self._context.phase(phase, self.step, microbatch, chunk=chunk)


def new_stages(
    context: JobContext, pp: dist.ProcessGroup, tp: dist.ProcessGroup
) -> list[NotedStage]:
    """This rank's chunks of the model, each a stage of its own."""
    chunks, n_ranks, rank = context.options.chunks, dist.get_world_size(pp), dist.get_rank(pp)
    return [
        NotedStage(
            context, new_stage(context, tp, seed=chunk * n_ranks + rank), chunk * n_ranks + rank,
            chunks * n_ranks, torch.device("cpu"), group=pp,
        )
        for chunk in range(chunks)
    ]  # fmt: skip


def new_schedule(
    context: JobContext, stages: list[NotedStage], pp: dist.ProcessGroup
) -> Callable[[int, int], torch.Tensor]:
    """Runs all passes of one step of one replica; gives the loss on the last stage, else 0."""
    parts = context.options.microbatches
    schedule: Any = (
        Schedule1F1B(stages[0], parts, loss_fn=squared_distance)
        if len(stages) == 1
        else ScheduleInterleaved1F1B(list(stages), parts, loss_fn=squared_distance)
    )
    is_first, is_last = dist.get_rank(pp) == 0, dist.get_rank(pp) == dist.get_world_size(pp) - 1

    def run(step: int, replica: int) -> torch.Tensor:
        for stage in stages:
            stage.step = step
        x = context.batch(step, BATCH * parts, context.options.hidden, stream=replica)
        losses: list[torch.Tensor] = []
        schedule.step(*([x] if is_first else []), **(
            {"target": x, "losses": losses} if is_last else {}
        ))  # fmt: skip
        return torch.stack(losses).sum().detach().reshape(1) if is_last else torch.zeros(1)

    return run


def run_tp_pp_dp_torch(context: JobContext) -> None:
    """The steps of the module's description; each ends with the norm over all ranks."""
    mesh = init_device_mesh("cpu", mesh_shape(context.world_size), mesh_dim_names=AXES)
    pp, dp, tp = (mesh.get_group(axis) for axis in AXES)
    for group in (pp, dp, tp):
        context.note_group(group)
    stages = new_stages(context, pp, tp)
    model = nn.ModuleList(stage.submod for stage in stages)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    run_passes = new_schedule(context, stages, pp)
    for step in context.steps():
        context.faults.compute(step)
        context.loss = run_passes(step, dist.get_rank(dp))
        with context.phase("grad_sync", step):
            norm = reduce_gradients(context, step, model, dp)
        with context.phase("optimizer", step):
            dist.all_reduce(norm)
            optimizer.step()
            optimizer.zero_grad()
