"""What happens between the steps of a job: evaluations and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

from comminsight.lab.context import JobContext

EVAL_BATCHES = 3


def interludes(
    context: JobContext, model: nn.Module, evaluate: Callable[[int], None]
) -> Callable[[int], None]:
    """For ``context.steps(between=…)``: evaluates and saves ``model`` as often as the options say.

    ``evaluate`` is told the step behind which it runs.
    """

    def between(step: int) -> None:
        options = context.options
        if is_due(step, options.eval_every):
            with context.truth.interval("evaluation", step=step), torch.no_grad():
                evaluate(step)
        if is_due(step, options.checkpoint_every):
            with context.truth.interval("checkpoint", step=step):
                save(context, model, step)

    return between


def is_due(step: int, every: int) -> bool:
    """Whether something that is done ``every`` steps follows ``step``; 0 is never."""
    return every > 0 and (step + 1) % every == 0


def save(context: JobContext, model: nn.Module, step: int) -> None:
    """Write the parameters with torch's own checkpoint writer, beside the truth file."""
    folder = Path(context.options.marks).absolute().parent / "checkpoint" / str(step)
    dist.barrier()
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
    time.sleep(context.options.pause_ms / 1000)
    dist.barrier()


def reduce_metric(total: torch.Tensor, n_samples: int) -> torch.Tensor:
    """The mean over all ranks, of a sum and a count in one all-reduce on the default group."""
    both = torch.stack([total.detach().sum(), torch.tensor(float(n_samples))])
    dist.all_reduce(both)
    return both[0] / both[1]
