"""Data parallel jobs: DDP, DDP with accumulation, members and uneven inputs, FSDP2, HSDP."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from comminsight.lab.context import JobContext
from comminsight.lab.interludes import EVAL_BATCHES, interludes, reduce_metric

BATCH = 8
BUCKET_MIB = 2
EVAL_STREAM = 1 << 20  # data that no rank trains on


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


def evaluation(context: JobContext, model: nn.Module) -> Callable[[int], None]:
    """Forward passes over data of its own, and one all-reduce of what they gave."""

    def evaluate(step: int) -> None:
        total = torch.zeros(1)
        for part in range(EVAL_BATCHES):
            x = context.batch(
                step, BATCH, context.options.hidden, part=part, stream=EVAL_STREAM + context.rank
            )
            total += model(x).pow(2).mean()
        reduce_metric(total, EVAL_BATCHES)

    return evaluate


def train_part(
    context: JobContext, model: nn.Module, step: int, part: int = 0, parts: int = 1
) -> torch.Tensor:
    """Forward and backward of one microbatch; its loss."""
    with context.phase("forward", step, part):
        context.faults.compute(step, parts)
        x = context.batch(step, BATCH, context.options.hidden, part=part)
        loss: torch.Tensor = model(x).pow(2).mean()
    with context.phase("backward", step, part):
        loss.backward()
    return loss


def update(context: JobContext, optimizer: torch.optim.Optimizer, step: int) -> None:
    """The optimizer's part of a step."""
    with context.phase("optimizer", step):
        optimizer.step()
        optimizer.zero_grad()


def run_ddp(context: JobContext, *, is_accumulating: bool = False) -> None:
    """DDP; with accumulation only the last microbatch communicates."""
    model = DistributedDataParallel(new_model(context), bucket_cap_mb=BUCKET_MIB)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    parts = context.options.microbatches if is_accumulating else 1
    between = interludes(context, model.module, evaluation(context, model.module))
    for step in context.steps(between=between):
        for part in range(parts):
            quiet = model.no_sync() if part < parts - 1 else contextlib.nullcontext()
            with quiet:
                loss = train_part(context, model, step, part, parts)
        update(context, optimizer, step)
        reduce_loss(context, loss)


def run_ddp_accum(context: JobContext) -> None:
    """DDP with gradient accumulation."""
    run_ddp(context, is_accumulating=True)


def run_ddp_members(context: JobContext) -> None:
    """An ensemble: two members, each DDP over half of the ranks, that may do fewer steps."""
    shape = (2, context.world_size // 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("member", "dp"))
    group = mesh.get_group("dp")
    context.note_group(group)
    model = DistributedDataParallel(
        new_model(context), bucket_cap_mb=BUCKET_MIB, process_group=group
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in context.steps():
        context.loss = train_part(context, model, step).detach()
        update(context, optimizer, step)


def run_ddp_join(context: JobContext) -> None:
    """DDP with uneven inputs: a rank that has no more of them takes part in the others' ops."""
    model = DistributedDataParallel(new_model(context), bucket_cap_mb=BUCKET_MIB)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Join([model]):
        for step in context.steps():
            context.loss = train_part(context, model, step).detach()
            update(context, optimizer, step)


def sharded_model(context: JobContext, mesh: DeviceMesh) -> Mlp:
    """The model, sharded per layer."""
    model = new_model(context)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train_sharded(context: JobContext, mesh: DeviceMesh, *, parts: int = 1) -> None:
    """FSDP2 on ``mesh`` with gradient clipping, whose norm all-reduce is the step's anchor.

    Gradients are scattered in the last of ``parts`` microbatches only.
    """
    model = sharded_model(context, mesh)
    assert isinstance(model, FSDPModule)  # noqa: S101 - made one by fully_shard
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    between = interludes(context, model, evaluation(context, model))
    for step in context.steps(between=between):
        for part in range(parts):
            model.set_requires_gradient_sync(part == parts - 1)
            loss = train_part(context, model, step, part, parts)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update(context, optimizer, step)
        context.loss = loss.detach()


def run_fsdp2(context: JobContext, *, parts: int = 1) -> None:
    """FSDP2 over all ranks."""
    mesh = init_device_mesh("cpu", (context.world_size,), mesh_dim_names=("dp_shard",))
    train_sharded(context, mesh, parts=parts)


def run_fsdp2_accum(context: JobContext) -> None:
    """FSDP2 with gradient accumulation."""
    run_fsdp2(context, parts=context.options.microbatches)


def run_hsdp(context: JobContext) -> None:
    """HSDP: two replicas, each sharded over half of the ranks."""
    shape = (2, context.world_size // 2)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp_replicate", "dp_shard"))
    train_sharded(context, mesh)
