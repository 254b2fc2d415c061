"""The lab's main job: TP x PP x DP written out op by op, so that its program is known exactly.

Per step and rank, with M microbatches and L layers: 2 M L all-reduces on ``mesh_tp``; on
``mesh_pp`` one send and one receive per microbatch and neighbour, in the order of 1F1B; one
gradient all-reduce on ``mesh_dp``; then one all-reduce of a single element on the default group
(the gradient norm: the step's anchor); on the last stage one of the loss on ``mesh_dp``. A forward
pass may contain a sleep (``--compute-ms``): the time of the arithmetic itself is not the point.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from comminsight.lab.context import JobContext
from comminsight.lab.interludes import EVAL_BATCHES, interludes

BATCH = 4
AXES = ("pp", "dp", "tp")


class CopyToTensorRanks(torch.autograd.Function):
    """Forward: nothing. Backward: the gradients of the tensor ranks are summed."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        """``x``."""
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The summed gradient."""
        total = gradient.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class SumOverTensorRanks(torch.autograd.Function):
    """Forward: the parts of the tensor ranks are summed. Backward: nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        """The sum."""
        total = x.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """``gradient``."""
        return gradient, None


class SplitLayer(nn.Module):
    """A residual block whose inner width is split over the tensor ranks."""

    def __init__(self, hidden: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self._group = group
        inner = 4 * hidden // dist.get_world_size(group)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape as ``x``."""
        y = self.down(torch.relu(self.up(CopyToTensorRanks.apply(x, self._group))))
        return x + SumOverTensorRanks.apply(y, self._group)


class PipelineEnd:
    """One stage's side of the pipeline: what it receives, keeps and sends."""

    def __init__(
        self,
        context: JobContext,
        group: dist.ProcessGroup,
        model: nn.Module,
        replicas: dist.ProcessGroup,
    ) -> None:
        self._context = context
        self._group = group
        self._replicas = replicas
        self._model = model
        self._stage = dist.get_rank(group)
        self._n_stages = dist.get_world_size(group)
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._sent: list[tuple[dist.Work, torch.Tensor]] = []
        self.is_last = self._stage == self._n_stages - 1
        self.loss = torch.zeros(1)

    def run_step(self, step: int, replica: int) -> None:
        """All microbatches of a step in 1F1B order."""
        parts = self._context.options.microbatches
        warm_up = min(self._n_stages - self._stage - 1, parts)
        self.loss = torch.zeros(1)
        for part in range(warm_up):
            self._forward(step, part, replica)
        for part in range(warm_up, parts):
            self._forward(step, part, replica)
            self._backward(step, part - warm_up)
        for part in range(parts - warm_up, parts):
            self._backward(step, part)
        self._finish_sends()

    def _finish_sends(self) -> None:
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()

    def _forward(self, step: int, part: int, replica: int) -> None:
        options = self._context.options
        if self._stage == 0:
            x = self._context.batch(step, BATCH, options.hidden, part=part, stream=replica)
        else:
            x = self._receive(self._stage - 1)
        with self._context.phase("forward", step, part):
            self._context.faults.compute(step, options.microbatches)
            x.requires_grad_()
            y = self._model(x)
        if self.is_last:
            y = y.pow(2).mean() / options.microbatches
            self.loss += y.detach()
        else:
            self._send(y.detach(), self._stage + 1)
        self._kept.append((x, y))

    def evaluate(self, step: int) -> None:
        """Forward passes only; the last stages average their losses."""
        loss = torch.zeros(1)
        for part in range(EVAL_BATCHES):
            if self._stage == 0:
                x = self._context.batch(step, BATCH, self._context.options.hidden, part=part)
            else:
                x = self._receive(self._stage - 1)
            y = self._model(x)
            if self.is_last:
                loss += y.pow(2).mean()
            else:
                self._send(y, self._stage + 1)
            self._reduce_metric()
        self._finish_sends()
        if self.is_last:
            dist.all_reduce(loss, group=self._replicas)

    def _backward(self, step: int, part: int) -> None:
        x, y = self._kept.pop(0)
        gradient = None if self.is_last else self._receive(self._stage + 1)
        with self._context.phase("backward", step, part):
            y.backward(gradient)
        if self._stage > 0:
            assert x.grad is not None  # noqa: S101 - x requires a gradient
            self._send(x.grad, self._stage - 1)
        self._reduce_metric()

    def _reduce_metric(self) -> None:
        """A number over all ranks, as a job does that shows its loss for every microbatch."""
        if self._context.options.batch_metric:
            dist.all_reduce(torch.ones(1))

    def _receive(self, peer: int) -> torch.Tensor:
        x = torch.empty(BATCH, self._context.options.hidden)
        dist.recv(x, group=self._group, group_src=peer)
        return x

    def _send(self, x: torch.Tensor, peer: int) -> None:
        work = dist.isend(x, group=self._group, group_dst=peer)
        assert work is not None  # noqa: S101 - this rank is a member of its group
        self._sent.append((work, x))  # the tensor must outlive the transfer


def mesh_shape(world_size: int) -> tuple[int, int, int]:
    """(pp, dp, tp): 2 x 2 x 2 for 8 ranks; axes fall away from the left for 4 and 2 ranks."""
    shapes = {8: (2, 2, 2), 4: (1, 2, 2), 2: (1, 1, 2), 16: (4, 2, 2)}
    return shapes.get(world_size, (1, world_size, 1))


def new_stage(context: JobContext, tp: dist.ProcessGroup, *, seed: int) -> nn.Module:
    """The layers of one stage; equal seeds and places give equal parameters."""
    torch.manual_seed(context.options.seed * 64 + seed * 8 + dist.get_rank(tp))
    layers = (SplitLayer(context.options.hidden, tp) for _ in range(context.options.layers))
    return nn.Sequential(*layers)


def run_tp_pp_dp(context: JobContext) -> None:
    """The steps of the module's description."""
    mesh = init_device_mesh("cpu", mesh_shape(context.world_size), mesh_dim_names=AXES)
    pp, dp, tp = (mesh.get_group(axis) for axis in AXES)
    for group in (pp, dp, tp):
        context.note_group(group)
    model = new_stage(context, tp, seed=dist.get_rank(pp))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    pipeline = PipelineEnd(context, pp, model, dp)
    for step in context.steps(between=interludes(context, model, pipeline.evaluate)):
        pipeline.run_step(step, dist.get_rank(dp))
        with context.phase("grad_sync", step):
            norm = reduce_gradients(context, step, model, dp)
        with context.phase("optimizer", step):
            dist.all_reduce(norm)
            if pipeline.is_last:
                dist.all_reduce(pipeline.loss, group=dp)
            context.loss = norm + pipeline.loss
            optimizer.step()
            optimizer.zero_grad()


def reduce_gradients(
    context: JobContext, step: int, model: nn.Module, group: dist.ProcessGroup
) -> torch.Tensor:
    """Average the gradients over the replicas as one buffer; the sum of their squares."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    pad = torch.zeros(context.options.gradient_pad)
    buffer = torch.cat([*(gradient.flatten() for gradient in gradients), pad])
    work = dist.all_reduce(buffer, group=group, async_op=True)
    context.faults.in_transfer(step)
    assert work is not None  # noqa: S101 - this rank is a member of its group
    work.wait()
    buffer /= dist.get_world_size(group)
    offset = 0
    for gradient in gradients:
        gradient.copy_(buffer[offset : offset + gradient.numel()].view_as(gradient))
        offset += gradient.numel()
    return buffer.pow(2).sum().reshape(1)
