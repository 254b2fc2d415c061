"""A job that plays the calls of a layout op by op, so that one rank can deviate at any of them."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from comminsight.lab.context import JobContext
from comminsight.lab.step_calls import WORLD, Call, calls_of, deviated, groups_of

Flying = list[tuple[Any, list[torch.Tensor]]]  # an op and the tensors that must outlive it


def run_calls(context: JobContext) -> None:
    """Every step: compute, then the calls of ``--layout``, with what ``--deviation`` plants."""
    options = context.options
    groups = new_groups(context)
    calls = calls_of(options.layout, context.world_size, context.rank)
    for step in context.steps():
        context.faults.compute(step)
        flying: Flying = []
        for call in planted(context, calls, step):
            flying.append(played(call, groups[call.group]))
            if not options.layout.endswith("async"):
                finish(flying)
        finish(flying)


def new_groups(context: JobContext) -> dict[str, dist.ProcessGroup]:
    """The groups of this rank by name; all ranks make all groups in one order."""
    assert dist.group.WORLD is not None  # noqa: S101 - initialised
    made = {WORLD: dist.group.WORLD}
    for name, lists in groups_of(context.options.layout, context.world_size).items():
        for members in lists if name != WORLD else ():
            group = dist.new_group(members, group_desc=name)
            if context.rank in members:
                made[name] = group
                context.note_group(group)
    return made


def planted(context: JobContext, calls: list[Call], step: int) -> list[Call]:
    """The calls of this step, deviated where that is planted."""
    options = context.options
    ranks = [int(rank) for rank in options.deviation_ranks.split(",") if rank]
    if not options.deviation or step != options.deviation_at or context.rank not in ranks:
        return calls
    context.truth.write("deviation", step=step, how=options.deviation, begin_ns=time.monotonic_ns())
    return deviated(calls, options.deviation, options.deviation_place, options.deviation_other)


def finish(flying: Flying) -> None:
    """Wait for all of it."""
    for work, _ in flying:
        work.wait()
    flying.clear()


def played(call: Call, group: dist.ProcessGroup) -> tuple[Any, list[torch.Tensor]]:
    """The op, begun."""
    own = torch.ones(call.numel, dtype=getattr(torch, call.dtype))
    shares = own.new_zeros(call.numel * dist.get_world_size(group))
    match call.op:
        case "all_reduce":
            work = dist.all_reduce(own, group=group, async_op=True)
        case "broadcast":
            work = dist.broadcast(own, group=group, group_src=call.peer, async_op=True)
        case "all_gather":
            work = dist.all_gather_into_tensor(shares, own, group=group, async_op=True)
        case "reduce_scatter":
            work = dist.reduce_scatter_tensor(own, shares, group=group, async_op=True)
        case "send":
            work = dist.isend(own, group=group, group_dst=call.peer)
        case _:
            work = dist.irecv(own, group=group, group_src=call.peer)
    return work, [own, shares]
