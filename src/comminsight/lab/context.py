"""What every lab job is given: its place in the world, its truth file and its faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from comminsight.lab.faults import Faults
from comminsight.lab.options import JobOptions
from comminsight.lab.truth import Truth


@dataclass(slots=True)
class JobContext:
    """One rank of a running job. ``loss`` and ``more`` are what the next ``step`` line will say."""

    options: JobOptions
    rank: int
    world_size: int
    truth: Truth
    faults: Faults
    loss: torch.Tensor | None = field(default=None)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def n_steps(self) -> int:
        """Steps of this rank."""
        is_short = 0 <= self.options.short_from <= self.rank
        return self.options.steps - (self.options.short_by if is_short else 0)

    def steps(
        self, n_steps: int | None = None, *, between: Callable[[int], None] | None = None
    ) -> Iterator[int]:
        """The step numbers, each step between its two truth lines; ``between`` is called behind
        each."""
        for step in range(self.n_steps if n_steps is None else n_steps):
            begin_ns = time.monotonic_ns()
            self.truth.write("step_begin", step=step, begin_ns=begin_ns)
            self.faults.at_step(step)
            yield step
            loss = "" if self.loss is None else float(self.loss).hex()
            self.truth.write(
                "step", step=step, begin_ns=begin_ns, end_ns=time.monotonic_ns(), loss=loss,
                **self.more,
            )  # fmt: skip
            if between is not None:
                between(step)

    def phase(
        self, phase: str, step: int, microbatch: int = 0, **more: Any
    ) -> AbstractContextManager[None]:
        """Write the begin and the end of a part of the step."""
        return self.truth.interval("phase", step=step, phase=phase, microbatch=microbatch, **more)

    def batch(
        self, step: int, *shape: int, part: int = 0, stream: int | None = None
    ) -> torch.Tensor:
        """Data of one (micro)batch; equal for equal ``stream`` (default: rank), step and part."""
        generator = torch.Generator()
        place = self.rank if stream is None else stream
        generator.manual_seed(hash((self.options.seed, place, step, part)) & 0x7FFFFFFF)
        return torch.randn(*shape, generator=generator)

    def note_group(self, group: dist.ProcessGroup) -> None:
        """Write the members of a group that this rank belongs to."""
        self.truth.write(
            "group",
            name=group.group_name,
            desc=group.group_desc,
            members=dist.get_process_group_ranks(group),
        )
