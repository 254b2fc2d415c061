"""Random training programs of several kinds, whose layers, microbatches, steps and logs look alike.

A step is one update of the parameters. What is drawn: how many microbatches, whether each reduces
gradients or a loss, norms, losses, logs and evaluations, where they stand, and all sizes and times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from unittest.mock import patch

import numpy as np

from comminsight.model.ops import DType, Op
from comminsight.semantics.template import Template
from comminsight.sim import SimLayout, SimRank, SimRun, cluster, megatron_layout, simulate
from comminsight.sim.groups import SimGroup
from comminsight.sim.program import Phase, Program, ProgramWriter, joined
from tests.unit.semantics.schedules import found_on

KIB, MS = 1 << 10, 1_000_000


class Family(StrEnum):
    """What moves the gradients."""

    DDP = "ddp"
    FSDP = "fsdp"
    ZERO = "zero"
    MESH = "tp pp dp"
    OWN = "made up"


LAYOUTS = {
    Family.DDP: (megatron_layout(1, 1, 2), megatron_layout(1, 1, 4)),
    Family.FSDP: (megatron_layout(1, 1, 4),),
    Family.ZERO: (megatron_layout(1, 1, 4),),
    Family.MESH: (megatron_layout(2, 2, 2), megatron_layout(2, 1, 2)),
    Family.OWN: (megatron_layout(1, 1, 4), megatron_layout(2, 1, 2)),
}


REDUCTIONS = {Family.FSDP: Op.REDUCE_SCATTER, Family.OWN: Op.REDUCE}


class When(StrEnum):
    """Where in the step something stands, if it does."""

    NEVER = ""
    BEFORE = "before the optimizer"
    BEHIND = "behind the optimizer"


@dataclass(frozen=True)
class Draw:
    """One program; sizes in bytes, times in ns."""

    family: Family
    layout: SimLayout
    steps: int
    microbatches: int
    buckets: tuple[int, ...]
    has_sync_each: bool  # gradients are reduced in every microbatch
    has_loss_each: bool  # so is a loss
    norm_numbers: int  # 0: the gradients are not clipped
    loss: When
    log: When
    log_every: int
    log_ns: int
    eval_every: int
    has_eval_data: bool
    forward_ns: int
    optimizer_ns: int

    @property
    def label(self) -> str:
        """What decides, in a line."""
        parts = [
            f"{self.family}", f"{self.layout.world_size} ranks", f"{self.steps} steps",
            f"{self.microbatches} mb{' sync' if self.has_sync_each else ''}"
            f"{' loss' if self.has_loss_each else ''}",
            f"{len(self.buckets)} buckets{' equal' if len({*self.buckets}) == 1 else ''}",
            f"norm {self.norm_numbers}" if self.norm_numbers else "",
            f"loss {self.loss}" if self.loss else "",
            f"log/{self.log_every} {self.log} {self.log_ns / MS:.0f}ms" if self.log else "",
            f"eval/{self.eval_every}" if self.eval_every else "",
            f"opt/fwd {self.optimizer_ns / self.forward_ns:.2f}",
        ]  # fmt: skip
        return ", ".join(part for part in parts if part)


def drawn(rng: np.random.Generator) -> Draw:
    """A random program."""
    family = list(Family)[int(rng.integers(len(Family)))]
    n_buckets = int(rng.integers(1, 6))
    sizes = [int(size) * 64 * KIB for size in rng.integers(1, 40, n_buckets)]
    is_equal = rng.random() < 0.3
    forward_ns = int(rng.integers(5, 30)) * MS
    return Draw(
        family=family,
        layout=LAYOUTS[family][int(rng.integers(len(LAYOUTS[family])))],
        steps=int(rng.integers(6, 50)),
        microbatches=int(rng.choice([1, 1, 2, 4, 8])),
        buckets=tuple([sizes[0]] * n_buckets if is_equal else sizes),
        has_sync_each=bool(rng.random() < 0.6),
        has_loss_each=bool(rng.random() < 0.5),
        norm_numbers=int(rng.choice([0, 1, 1, 24])),
        loss=When(rng.choice(list(When))),
        log=When(rng.choice([*When, When.NEVER])),
        log_every=int(rng.choice([2, 5, 10])),
        log_ns=int(rng.choice([0, 0, 3, 50])) * MS,
        eval_every=int(rng.choice([0, 0, 4, 10])),
        has_eval_data=bool(rng.random() < 0.5),
        forward_ns=forward_ns,
        optimizer_ns=round(forward_ns * float(rng.choice([0.02, 0.1, 0.3, 1.0]))),
    )


def run_of(draw: Draw, seed: int) -> SimRun:
    """The program, simulated."""

    def step_programs(
        layout: SimLayout, groups: tuple[SimGroup, ...], dimensions: dict[str, int], rank: int,
        steps: int,
    ) -> list[Program]:  # fmt: skip
        def written(write: Callable[[ProgramWriter], None]) -> Program:
            writer = ProgramWriter(layout, groups, dimensions, rank)
            write(writer)
            return writer.program

        parts = [
            written(lambda writer: write_step(writer, draw, has_log=False)),
            written(lambda writer: write_step(writer, draw, has_log=True)),
            written(lambda writer: write_evaluation(writer, draw)),
        ]
        plans = []
        for step in range(1, steps + 1):
            has_log = bool(draw.log) and step % draw.log_every == 0
            has_eval = draw.eval_every > 0 and step % draw.eval_every == 0
            plans.append([int(has_log), *([2] if has_eval else [])])
        return joined(parts, plans)

    with patch.object(cluster, "step_programs", step_programs):
        return simulate(draw.layout, steps=draw.steps, seed=seed)


def write_step(writer: ProgramWriter, draw: Draw, *, has_log: bool) -> None:
    """One update of the parameters."""
    for microbatch in range(draw.microbatches):
        is_last = microbatch + 1 == draw.microbatches
        writer.work(MS, Phase.DATA)
        _passes(writer, draw, has_sync=is_last or draw.has_sync_each)
        writer.work(0.2 * MS, Phase.OPTIMIZER)
        if draw.has_loss_each:
            writer.call("world", Op.ALL_REDUCE, 4)
    if draw.norm_numbers:
        writer.work(0.1 * MS, Phase.OPTIMIZER)
        writer.call("world", Op.ALL_REDUCE, 4 * draw.norm_numbers)
    for when in (When.BEFORE, When.BEHIND):
        if draw.loss is when:
            writer.call("world", Op.ALL_REDUCE, 4)
        if has_log and draw.log is when:
            writer.call("world", Op.ALL_REDUCE, 4)
            writer.work(draw.log_ns, Phase.DATA)
        if when is When.BEFORE:
            writer.work(draw.optimizer_ns, Phase.OPTIMIZER)
            if draw.family is Family.ZERO:
                for size in draw.buckets:
                    writer.call("world", Op.ALL_GATHER, size // 4, dtype=DType.BFLOAT16)


def _passes(writer: ProgramWriter, draw: Draw, *, has_sync: bool) -> None:
    """Forward and backward."""
    n = len(draw.buckets)
    if draw.family is Family.OWN:
        writer.call("tp", Op.BROADCAST, 4 * KIB, dtype=DType.INT64, peer=0)
    for layer in range(n):
        if draw.family is Family.FSDP:
            writer.call("dp", Op.ALL_GATHER, draw.buckets[layer] // 4)
        writer.work(draw.forward_ns / n, Phase.FORWARD)
        if draw.family is Family.MESH:
            writer.call("tp", Op.ALL_REDUCE, 256 * KIB)
    _neighbours(writer, draw)
    slots = []
    for layer in reversed(range(n)):
        if draw.family is Family.FSDP:
            writer.call("dp", Op.ALL_GATHER, draw.buckets[layer] // 4)
        writer.work(2 * draw.forward_ns / n, Phase.BACKWARD)
        if draw.family is Family.MESH:
            writer.call("tp", Op.ALL_REDUCE, 256 * KIB)
        if has_sync:
            writer.label(Phase.GRAD_SYNC)
            op = REDUCTIONS.get(draw.family, Op.ALL_REDUCE)
            root = layer % writer.size("dp") if op is Op.REDUCE else -1
            slots.append(writer.issue("dp", op, draw.buckets[layer], peer=root))
    for slot in slots:
        writer.wait(slot)


def _neighbours(writer: ProgramWriter, draw: Draw) -> None:
    """A pipeline's messages, of all stages at once."""
    n = writer.size("pp")
    if draw.family is Family.MESH and n > 1:
        own = writer.comm_rank("pp")
        if own + 1 < n:
            writer.call("pp", Op.SEND, 256 * KIB, peer=own + 1)
        if own > 0:
            writer.call("pp", Op.RECV, 256 * KIB, peer=own - 1)


def write_evaluation(writer: ProgramWriter, draw: Draw) -> None:
    """Forward passes, perhaps the predictions gathered, and a number."""
    writer.label(Phase.EVALUATION)
    for _ in range(2):
        for size in draw.buckets:
            if draw.family is Family.FSDP:
                writer.call("dp", Op.ALL_GATHER, size // 4)
            writer.work(draw.forward_ns / len(draw.buckets), Phase.EVALUATION)
    if draw.has_eval_data:
        writer.call("world", Op.ALL_GATHER, 128 * KIB)
    writer.call("world", Op.ALL_REDUCE, 4)


def updates_of(rank: SimRank) -> np.ndarray:
    """The last reduction of gradients of every true step, as a place among the rank's ops."""
    log = rank.log
    sizes = log.ops["size_bytes"].astype(np.int64)
    is_gradient = np.isin(log.ops["op"], [Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.REDUCE])
    is_gradient &= (sizes > 8192) & (log.phases == list(Phase).index(Phase.GRAD_SYNC))
    places = np.flatnonzero(is_gradient)
    steps = log.steps[places]
    return places[np.r_[steps[1:] != steps[:-1], True]]


def n_wrong(rank: SimRank, template: Template) -> int:
    """Found steps that do not hold the end of the gradients of exactly one true step, and true
    steps that are not found but for one that is cut off."""
    keys = zip(rank.log.ops["comm_index"].tolist(), rank.log.ops["op_seq"].tolist(), strict=True)
    place = {key: number for number, key in enumerate(keys)}
    ends, steps = updates_of(rank), found_on(rank, (template,)).steps
    wrong = max(0, abs(len(ends) - len(steps)) - 1)
    for step in steps:
        first, last = (place[e.comm_index, e.op_seq] for e in (step.first, step.last))
        wrong += int(((ends >= first) & (ends <= last)).sum() != 1)
    return wrong
