"""Jobs whose blocks look like steps, or whose steps look like blocks: one rank, written by hand.

``JobWriter`` writes the ops of one rank with the time between them; a job is a function that writes
one step at a time. ``true_starts`` says with which op each step's own ops begin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import Op
from comminsight.model.topology import SessionIdentity
from comminsight.semantics.engine import SessionEngine
from comminsight.semantics.template import Template
from tests.builders import Stream, comm_row
from tests.unit.semantics.schedules import Found

WORLD, TP = 1, 2
LATENCY_MS, BYTES_PER_MS = 0.05, 4e6
KIB, MIB = 1 << 10, 1 << 20
_NAMES = {WORLD: b"default_pg", TP: b"tp:device"}


class JobWriter:
    """One rank's ops; own work varies by a lognormal of ``sigma``."""

    def __init__(self, seed: int, sigma: float = 0.02) -> None:
        self._stream = Stream()
        self._rng = np.random.default_rng(seed)
        self._sigma = sigma
        self._now_ms = 1_000.0
        self._comms: set[int] = set()
        self.n_ops = 0

    def work(self, ms: float) -> None:
        """Own work."""
        self._now_ms += ms * self._rng.lognormal(0, self._sigma)

    def call(self, op: Op, size: int, comm: int = WORLD, **fields: int) -> None:
        """An op that is waited for."""
        self._now_ms = self.issue(op, size, comm, **fields)

    def issue(self, op: Op, size: int, comm: int = WORLD, **fields: int) -> float:
        """An op that is not waited for, and when it ends."""
        took_ms = (LATENCY_MS + size / BYTES_PER_MS) * self._rng.lognormal(0, 0.05)
        self._stream.add(op, self._now_ms, took_ms, comm=comm, size=size, **fields)
        self._comms.add(comm)
        self.n_ops += 1
        ends_ms = self._now_ms + took_ms
        self._now_ms += 0.005
        return ends_ms

    def wait(self, until_ms: float) -> None:
        """Wait for what was issued."""
        self._now_ms = max(self._now_ms, until_ms)

    def records(self) -> tuple[np.ndarray, np.ndarray]:
        """Communicator rows and records."""
        rows = [comm_row(c, "0-3", 0, desc=_NAMES[c]) for c in sorted(self._comms)]
        batch = self._stream.batch()
        assert batch.dtype == OP_DTYPE
        return np.concatenate(rows), batch


@dataclass(frozen=True)
class OddJob:
    """The records of one rank and the number of the op that each step begins with."""

    comms: np.ndarray
    records: np.ndarray
    true_starts: list[int]
    true_ends: list[int]  # number of the last op of the step's last backward pass or norm

    def found(self, templates: tuple[Template, ...]) -> Found:
        """What the engine makes of it."""
        engine = SessionEngine(templates, identity=SessionIdentity(session_id="s"))
        engine.add_comms(self.comms)
        steps = engine.push(self.records) + engine.finish()
        return Found(engine.state.template, steps, engine.selection)

    def is_right(self, found: Found) -> bool:
        """Whether the steps found are the job's, each from its first op."""
        starts = [step.first_seq - 1 for step in found.steps]
        ends = [step.last_seq - 1 for step in found.steps]
        return starts == self.true_starts and all(
            end >= least for end, least in zip(ends, self.true_ends, strict=True)
        )


StepWriter = Callable[[JobWriter, int], tuple[int, int]]


def odd_job(write: StepWriter, steps: int = 40, seed: int = 1, sigma: float = 0.02) -> OddJob:
    """The job of so many steps; ``write`` gives the first and the last op of each."""
    writer = JobWriter(seed, sigma)
    bounds = [write(writer, step) for step in range(steps)]
    return OddJob(*writer.records(), [first for first, _ in bounds], [last for _, last in bounds])


def buckets(
    writer: JobWriter, sizes: tuple[int, ...], backward_ms: float, small: tuple[int, ...] = ()
) -> int:
    """A backward pass with gradient buckets, and before each a small all-reduce of a layer that is
    normalised over all ranks; the number of its first op."""
    first, until_ms = writer.n_ops, 0.0
    for place, size in enumerate(sizes):
        if place < len(small):
            writer.work(backward_ms / len(sizes) / 2)
            writer.call(Op.ALL_REDUCE, small[place])
        writer.work(backward_ms / len(sizes) / (2 if small else 1))
        until_ms = writer.issue(Op.ALL_REDUCE, size)
    writer.wait(until_ms)
    return first


def ddp(
    microbatches: int = 1, sizes: tuple[int, ...] = (2 * MIB,) * 4, *, has_loss: bool = True,
    is_loss_per_batch: bool = False, norm_layers: int = 0, matrix_every: int = 0,
    optimizer_ms: float = 3.0, eval_every: int = 0, log_every: int = 0, checkpoint_every: int = 0,
    has_first_bucket: bool = True,
) -> StepWriter:  # fmt: skip
    """DDP that reduces in every microbatch (without ``no_sync``)."""

    def write(writer: JobWriter, step: int) -> tuple[int, int]:
        first = last = -1
        for _ in range(microbatches):
            writer.work(8.0)
            for layer in range(norm_layers):
                writer.call(Op.ALL_GATHER, 4 * (2 * 64 * (1 + layer % 3) + 1))
                writer.work(1.0)
            small = tuple(4 * 2 * 64 * (1 + layer % 3) for layer in range(norm_layers))
            is_one = has_first_bucket and step == 0 and first < 0
            own = (sum(sizes),) if is_one else sizes
            begin = writer.n_ops
            if is_one and small:
                for size in small:
                    writer.work(2.0)
                    writer.call(Op.ALL_REDUCE, size)
                buckets(writer, own, 4.0)
            else:
                _layers(writer, own, small)
            first, last = begin if first < 0 else first, writer.n_ops - 1
            if is_loss_per_batch:
                writer.call(Op.ALL_REDUCE, 4)
        writer.work(optimizer_ms)
        if has_loss and not is_loss_per_batch:
            writer.call(Op.ALL_REDUCE, 4)
        _between(writer, step, eval_every, log_every, checkpoint_every, matrix_every)
        return first, last

    return write


def _layers(writer: JobWriter, sizes: tuple[int, ...], small: tuple[int, ...]) -> None:
    """Small all-reduces as the layers come, a bucket after its share of them."""
    if not small:
        buckets(writer, sizes, 16.0)
        return
    until_ms = 0.0
    per_bucket = -(-len(small) // len(sizes))
    for place, size in enumerate(sizes):
        for one in small[place * per_bucket : (place + 1) * per_bucket]:
            writer.work(1.5)
            writer.call(Op.ALL_REDUCE, one)
        writer.work(1.5)
        until_ms = writer.issue(Op.ALL_REDUCE, size)
    writer.wait(until_ms)


def _between(
    writer: JobWriter, step: int, eval_every: int, log_every: int, checkpoint_every: int,
    matrix_every: int,
) -> None:  # fmt: skip
    nth = step + 1
    if log_every and nth % log_every == 0:
        writer.call(Op.ALL_REDUCE, 4)
    if eval_every and nth % eval_every == 0:
        writer.work(20.0)
        writer.call(Op.ALL_REDUCE, 4)
    if matrix_every and nth % matrix_every == 0:
        writer.work(20.0)
        writer.call(Op.ALL_REDUCE, 40_000)
    if checkpoint_every and nth % checkpoint_every == 0:
        writer.call(Op.BARRIER, 0)
        writer.work(200.0)
        writer.call(Op.BARRIER, 0)


def fsdp2(
    microbatches: int = 1, layers: int = 4, *, norm: int = 0, is_loss_per_batch: bool = False,
    has_loss: bool = False, norm_layers: int = 0, is_scatter_last: bool = False,
    optimizer_ms: float = 3.0, eval_every: int = 0, log_every: int = 0, checkpoint_every: int = 0,
    is_gathered_again: bool = True,
) -> StepWriter:  # fmt: skip
    """FSDP2 that scatters in every microbatch; ``norm`` numbers are clipped (0: not)."""

    def write(writer: JobWriter, step: int) -> tuple[int, int]:
        first = writer.n_ops
        for batch in range(microbatches):
            is_last = batch + 1 == microbatches
            has_scatter = is_last or not is_scatter_last
            _forward(writer, layers, norm_layers)
            _backward(writer, layers, norm_layers, has_scatter, is_gathered_again)
            if is_loss_per_batch:
                writer.call(Op.ALL_REDUCE, 4)
        if norm:
            writer.call(Op.ALL_REDUCE, 4 * norm)
        last = writer.n_ops - 1
        writer.work(optimizer_ms)
        if has_loss:
            writer.call(Op.ALL_REDUCE, 4)
        for _ in range(2 if eval_every and (step + 1) % eval_every == 0 else 0):
            _forward(writer, layers, 0)
        _between(writer, step, eval_every, log_every, checkpoint_every, 0)
        return first, last

    return write


def _forward(writer: JobWriter, layers: int, norm_layers: int) -> None:
    ahead = writer.issue(Op.ALL_GATHER, 512 * KIB)
    for layer in range(layers):
        now = ahead
        if layer + 1 < layers:
            ahead = writer.issue(Op.ALL_GATHER, 512 * KIB)
        writer.wait(now)
        writer.work(2.0)
        if layer < norm_layers:
            writer.call(Op.ALL_GATHER, 4 * 129)


def _backward(
    writer: JobWriter, layers: int, norm_layers: int, has_scatter: bool, is_gathered_again: bool
) -> None:
    """A unit's scatter is issued behind the next gather; one gather is ahead."""
    ahead = writer.issue(Op.ALL_GATHER, 512 * KIB) if is_gathered_again else 0.0
    until_ms = 0.0
    for layer in range(layers):
        now = ahead
        if layer + 1 < layers and is_gathered_again:
            ahead = writer.issue(Op.ALL_GATHER, 512 * KIB)
        if layer > 0 and has_scatter:
            until_ms = writer.issue(Op.REDUCE_SCATTER, 2 * MIB)
        writer.wait(now)
        writer.work(2.0)
        if layer < norm_layers:
            writer.call(Op.ALL_REDUCE, 4 * 128)
        writer.work(2.0)
    if has_scatter:
        until_ms = writer.issue(Op.REDUCE_SCATTER, 2 * MIB)
    writer.wait(until_ms)


def speculative(drafts: int, draft_layers: int, layers: int) -> StepWriter:
    """Tensor parallel serving: iterations of a small model, then one of the large."""

    def write(writer: JobWriter, _step: int) -> tuple[int, int]:
        begin = writer.n_ops
        for n_layers in (*(draft_layers,) * drafts, layers):
            writer.work(0.3)
            for _ in range(2 * n_layers + 1):
                writer.work(0.1)
                writer.call(Op.ALL_REDUCE, 64 * KIB, TP)
            writer.call(Op.ALL_GATHER, 64 * KIB, TP)
        return begin, writer.n_ops - 1

    return write
