"""Jobs without a model: many ops, for load and for the truth of a killed process."""

from __future__ import annotations

import gc
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.utils.data

from comminsight.lab.context import JobContext

WINDOW = 16
GC_EVERY = 200  # ops between collections: finished ops die in every possible place
N_THREADS = 4
TIMEOUT_S = 0.5


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
            if n % GC_EVERY == 0:
                gc.collect()
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


def run_threads(context: JobContext) -> None:
    """Four threads, each with a group of its own, all in flight at once."""
    everyone = list(range(context.world_size))
    groups = [dist.new_group(everyone, group_desc=f"thread_{n}") for n in range(N_THREADS)]
    failures: list[BaseException] = []

    def reduce_all(group: dist.ProcessGroup) -> None:
        try:
            for n in range(context.options.ops):
                dist.all_reduce(torch.full((8,), float(n)), group=group)
        except RuntimeError as error:
            failures.append(error)

    for _ in context.steps():
        threads = [threading.Thread(target=reduce_all, args=(group,)) for group in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def run_loader(context: JobContext) -> None:
    """Batches from forked DataLoader workers, one all-reduce per batch."""
    data = torch.utils.data.TensorDataset(torch.arange(float(4 * context.options.steps)))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
    batches = iter(loader)
    for _ in context.steps():
        (batch,) = next(batches)
        dist.all_reduce(batch)
        context.loss = batch.sum()


def run_timeout(context: JobContext) -> None:
    """The last rank of an impatient group comes too late: the others fail in ``wait()``."""
    everyone = list(range(context.world_size))
    group = dist.new_group(everyone, timeout=timedelta(seconds=TIMEOUT_S), group_desc="impatient")
    for _ in context.steps():
        dist.all_reduce(torch.ones(4), group=group)
        if context.rank == context.world_size - 1:
            time.sleep(3 * TIMEOUT_S)
        dist.all_reduce(torch.ones(4), group=group)


def run_abandon(context: JobContext) -> None:
    """Rank 0 exits with ops in flight, which complete while its interpreter goes."""
    for _ in context.steps():
        dist.all_reduce(torch.ones(4))
    if context.rank > 0:
        time.sleep(2 * TIMEOUT_S)
    flying = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(WINDOW)]
    if context.rank > 0:
        for work in flying:
            assert work is not None  # noqa: S101 - this rank is a member of its group
            work.wait()
    sys.exit(0)
