"""A mixture of experts: tokens travel to their experts and back by all-to-alls of uneven sizes.

Ranks are split into ``mesh_edp`` x ``mesh_ep``: experts are spread over ``ep`` and copied over
``edp``, everything else is copied on all ranks. Per layer and step: the counts, the tokens there
and back, and in the backward pass the gradients there and back.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from comminsight.lab.context import JobContext
from comminsight.lab.dense import BATCH, update
from comminsight.lab.interludes import interludes

TOKENS = 4 * BATCH


class Exchange(torch.autograd.Function):
    """Rows to the ranks of a group, ``sent[n]`` to rank n; the gradients go back the same way."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup
    ) -> torch.Tensor:
        """The received rows in the order of the ranks."""
        ctx.sizes, ctx.group = (sent, received), group
        return exchanged(x, sent, received, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """The gradients of the rows that this rank sent."""
        sent, received = ctx.sizes
        return exchanged(gradient, received, sent, ctx.group), None, None, None


def exchanged(
    x: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup
) -> torch.Tensor:
    """One all-to-all of rows."""
    y = x.new_empty(sum(received), x.shape[1])
    dist.all_to_all_single(y, x.contiguous(), received, sent, group=group)
    return y


class ExpertLayer(nn.Module):
    """One expert per rank of ``ep``; each token goes to the one its router likes best."""

    def __init__(self, hidden: int, ep: dist.ProcessGroup, expert_seed: int) -> None:
        super().__init__()
        self._ep = ep
        self.router = nn.Linear(hidden, dist.get_world_size(ep), bias=False)
        torch.manual_seed(expert_seed + dist.get_rank(ep))
        self.expert = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(tokens, hidden)`` to the same shape."""
        weight, expert = self.router(x).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        sent = torch.bincount(expert, minlength=self.router.out_features)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self._ep)
        sizes = sent.tolist(), received.tolist()
        there = Exchange.apply(x[order], *sizes, self._ep)
        back = Exchange.apply(self.expert(there), *reversed(sizes), self._ep)
        return x + torch.zeros_like(x).index_copy(0, order, back) * weight[:, None]


def new_layers(context: JobContext, ep: dist.ProcessGroup) -> nn.Sequential:
    """The same routers on all ranks, the same experts on all ranks of equal place in ``ep``."""
    layers = []
    for layer in range(context.options.layers):
        torch.manual_seed(context.options.seed * 64 + layer)
        layers.append(ExpertLayer(context.options.hidden, ep, 1000 * (layer + 1)))
    return nn.Sequential(*layers)


def run_moe(context: JobContext) -> None:
    """Steps: forward, backward, gradients of routers and experts, the norm over all ranks."""
    ep_size = max(2, context.world_size // 2)
    mesh = init_device_mesh(
        "cpu", (context.world_size // ep_size, ep_size), mesh_dim_names=("edp", "ep")
    )
    edp, ep = mesh.get_group("edp"), mesh.get_group("ep")
    for group in (edp, ep):
        context.note_group(group)
    model = new_layers(context, ep)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def evaluate(step: int) -> None:
        loss = model(context.batch(step, TOKENS, context.options.hidden)).pow(2).mean().reshape(1)
        dist.all_reduce(loss, group=edp)

    for step in context.steps(between=interludes(context, model, evaluate)):
        with context.phase("forward", step):
            context.faults.compute(step)
            loss = model(context.batch(step, TOKENS, context.options.hidden)).pow(2).mean()
        with context.phase("backward", step):
            loss.backward()
        with context.phase("grad_sync", step):
            norm = sum_gradients(model, edp)
        dist.all_reduce(norm)
        update(context, optimizer, step)
        context.loss = loss.detach()


def sum_gradients(model: nn.Sequential, edp: dist.ProcessGroup) -> torch.Tensor:
    """Routers over all ranks, experts over their copies; the sum of squares of both."""
    experts = [p for name, p in model.named_parameters() if ".expert." in name]
    routers = [p for name, p in model.named_parameters() if ".expert." not in name]
    total = torch.zeros(1)
    for parameters, group in ((routers, dist.group.WORLD), (experts, edp)):
        gradients = [p.grad for p in parameters if p.grad is not None]
        buffer = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(buffer, group=group)
        total += buffer.pow(2).sum()
        parts = buffer.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
    return total
