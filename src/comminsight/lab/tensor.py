"""Jobs that split layers or stages with torch's own means: DTensor and torch pipelining."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from comminsight.lab.context import JobContext
from comminsight.lab.dense import BATCH, Mlp, new_model


def train_whole(context: JobContext, model: nn.Module, *shape: int) -> None:
    """Plain steps: forward, backward, update."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in context.steps():
        context.faults.compute(step)
        y = model(context.batch(step, *shape, stream=0))
        local = y.to_local() if hasattr(y, "to_local") else y
        loss = local.pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        context.loss = loss.detach()


def run_tp(context: JobContext) -> None:
    """Tensor parallel: one all-reduce per layer and direction."""
    mesh = init_device_mesh("cpu", (context.world_size,), mesh_dim_names=("tp",))
    model = new_model(context)
    for layer in model.layers:
        parallelize_module(layer, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train_whole(context, model, BATCH, context.options.hidden)


class SequenceBlock(nn.Module):
    """Norm, up, down: the norm works on a shard of the sequence."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape as ``x``."""
        return self.down(torch.relu(self.up(self.norm(x))))


def run_tpsp(context: JobContext) -> None:
    """Tensor and sequence parallel: all-gather and reduce-scatter instead of all-reduce."""
    mesh = init_device_mesh("cpu", (context.world_size,), mesh_dim_names=("tp",))
    torch.manual_seed(context.options.seed)
    hidden = context.options.hidden
    model = nn.Sequential(*(SequenceBlock(hidden) for _ in range(context.options.layers)))
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    for block in model:
        parallelize_module(block, mesh, plan)
    train_whole(context, model, 2, BATCH // context.world_size, hidden)


def run_pp(context: JobContext) -> None:
    """torch's own pipeline, schedule 1F1B, one stage per rank."""
    mesh = init_device_mesh("cpu", (context.world_size,), mesh_dim_names=("pp",))
    hidden, parts = context.options.hidden, context.options.microbatches
    torch.manual_seed(context.options.seed + context.rank)
    stage = PipelineStage(
        Mlp(hidden, 1), context.rank, context.world_size, torch.device("cpu"),
        group=mesh.get_group(),
    )  # fmt: skip
    schedule = Schedule1F1B(stage, n_microbatches=parts, loss_fn=squared_distance)
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=1e-3)
    for step in context.steps():
        context.faults.compute(step)
        x = context.batch(step, 4 * parts, hidden, stream=0)
        losses: list[torch.Tensor] = []
        if context.rank == 0:
            schedule.step(x)
        elif context.rank == context.world_size - 1:
            schedule.step(target=x, losses=losses)
            context.loss = torch.stack(losses).sum()
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()


def squared_distance(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean squared distance."""
    return (output - target).pow(2).mean()
