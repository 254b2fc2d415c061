"""Data parallel jobs: DDP, DDP with accumulation, FSDP2, HSDP."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from comminsight.lab.context import JobContext

BATCH = 8
BUCKET_MIB = 2


class Mlp(nn.Module):
    """Residual blocks of two linear layers."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))
            for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape as ``x``."""
        for layer in self.layers:
            x = x + layer(x)
        return x


def new_model(context: JobContext) -> Mlp:
    """The same parameters on every rank."""
    torch.manual_seed(context.options.seed)
    return Mlp(context.options.hidden, context.options.layers)


def reduce_loss(context: JobContext, loss: torch.Tensor) -> None:
    """Sum the loss over all ranks, as jobs do for their log: one scalar on the default group."""
    total = loss.detach().clone()
    dist.all_reduce(total)
    context.loss = total


def run_ddp(context: JobContext, *, is_accumulating: bool = False) -> None:
    """DDP; with accumulation only the last microbatch communicates."""
    model = DistributedDataParallel(new_model(context), bucket_cap_mb=BUCKET_MIB)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    parts = context.options.microbatches if is_accumulating else 1
    for step in context.steps():
        for part in range(parts):
            quiet = model.no_sync() if part < parts - 1 else contextlib.nullcontext()
            with quiet:
                context.faults.compute(step, parts)
                x = context.batch(step, BATCH, context.options.hidden, part=part)
                loss = model(x).pow(2).mean()
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        reduce_loss(context, loss)


def run_ddp_accum(context: JobContext) -> None:
    """DDP with gradient accumulation."""
    run_ddp(context, is_accumulating=True)


def train_sharded(context: JobContext, mesh: DeviceMesh) -> None:
    """FSDP2 on ``mesh`` with gradient clipping, whose norm all-reduce is the step's anchor."""
    model = new_model(context)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in context.steps():
        context.faults.compute(step)
        loss = model(context.batch(step, BATCH, context.options.hidden)).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        context.loss = loss.detach()


def run_fsdp2(context: JobContext) -> None:
    """FSDP2 over all ranks."""
    mesh = init_device_mesh("cpu", (context.world_size,), mesh_dim_names=("dp_shard",))
    train_sharded(context, mesh)


def run_hsdp(context: JobContext) -> None:
    """HSDP: two replicas, each sharded over half of the ranks."""
    shape = (2, context.world_size // 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp_replicate", "dp_shard"))
    train_sharded(context, mesh)
