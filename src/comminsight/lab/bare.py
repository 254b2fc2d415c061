"""Jobs without a model: many ops, for load and for the truth of a killed process."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from comminsight.lab.context import JobContext

WINDOW = 16


def run_flood(context: JobContext) -> None:
    """``--ops`` small all-reduces on a group of its own, up to 16 in flight, as fast as they go."""
    group = dist.new_group(list(range(context.world_size)), group_desc="flood")
    context.note_group(group)
    flying: list[dist.Work] = []
    for _ in context.steps():
        for n in range(context.options.ops):
            work = dist.all_reduce(torch.full((4,), float(n)), group=group, async_op=True)
            assert work is not None  # noqa: S101 - this rank is a member of its group
            flying.append(work)
            if len(flying) == WINDOW:
                flying.pop(0).wait()
        while flying:
            flying.pop(0).wait()


def run_kill(context: JobContext) -> None:
    """All-reduces one by one; each is written into the truth file once ``wait()`` returned."""
    value = torch.ones(1)
    for step in context.steps():
        for n in range(context.options.ops):
            work = dist.all_reduce(value, async_op=True)
            assert work is not None  # noqa: S101 - this rank is a member of its group
            work.wait()
            number = step * context.options.ops + n + 1
            context.truth.write(
                "op", desc="default_pg", op="ALL_REDUCE", n=number, end_ns=time.monotonic_ns()
            )
            value.fill_(1.0)
