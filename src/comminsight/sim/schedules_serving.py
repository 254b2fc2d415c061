"""Serving engines, where a decode iteration is the step, and tensor parallel training alone.

An iteration reduces the embedding and twice per layer inside TP and gathers the logits. With data
parallel attention and expert parallel layers the ranks first agree on their batch sizes (a small
all-gather that goes on while nobody asks for anything), then every layer has two all-to-alls.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from comminsight.model.ops import DType, Op
from comminsight.sim.layout import Batching, Schedule
from comminsight.sim.program import Phase, ProgramWriter

_PREFILL_FACTOR = 16
_IDLE_ROUNDS = 5
_ARRIVAL = 3  # iterations to the next request
_BUDGET = 96  # tokens of an iteration that takes prompts in chunks
_CHECKED = 4  # tokens of a sequence that are verified at once
_STATIC, _STATIC_PROMPT = 16, 64  # sequences, tokens
_ROW_BYTES = 65_536  # logits of one token


def write_decode(writer: ProgramWriter) -> None:
    """One token for every sequence of the batch."""
    _write_iteration(writer, 1)


def write_prefill(writer: ProgramWriter) -> None:
    """The prompts of new sequences: larger messages, longer work."""
    _write_iteration(writer, _PREFILL_FACTOR)


class Batch(NamedTuple):
    """One iteration: tokens of prompts, prompts, and sequences that go on with ``n_each`` tokens
    each."""

    n_prompt_tokens: int
    n_prompts: int
    n_decodes: int
    n_each: int = 1

    @property
    def n_tokens(self) -> int:
        """All tokens."""
        return self.n_prompt_tokens + self.n_decodes * self.n_each

    @property
    def n_rows(self) -> int:
        """Tokens that logits are asked of."""
        return self.n_prompts + self.n_decodes * self.n_each

    @property
    def mode(self) -> str:
        """Prefill, decode or mixed: the truth. The last token of a prompt alone, after a chunk, is
        taken in like a token of an answer."""
        if self.n_prompt_tokens == self.n_prompts:
            return "decode"
        return "mixed" if self.n_decodes else "prefill"


def batches_of(batching: Batching, steps: int) -> list[Batch]:
    """The iterations of an engine."""
    if batching is Batching.PREFILL:
        return [Batch(_prompt(step), 1 + step % 2, 0) for step in range(steps)]
    if batching is Batching.STATIC:
        prefill, decode = Batch(_STATIC * _STATIC_PROMPT, _STATIC, 0), Batch(0, 0, _STATIC)
        return [prefill if step % 10 == 0 else decode for step in range(steps)]
    waiting: deque[int] = deque()  # tokens of prompts
    running: list[int] = []  # iterations that each sequence still takes
    batches: list[Batch] = []
    for step in range(steps):
        if step % _ARRIVAL == 0 or not (waiting or running):
            waiting.append(_prompt(step))
        is_chunked = batching is Batching.CHUNKED
        batch = _chunked(waiting, len(running)) if is_chunked else _separate(waiting, len(running))
        if batch.n_decodes:
            running = [left - 1 for left in running if left > 1]
        running += [4 + (step + n) * 13 % 29 for n in range(batch.n_prompts)]
        is_checked = batching is Batching.SPECULATIVE and batch.n_decodes > 0
        batches.append(batch._replace(n_each=_CHECKED if is_checked else 1))
    return batches


def _prompt(step: int) -> int:
    return 70 + step * 37 % 211


def _separate(waiting: deque[int], n_running: int) -> Batch:
    if not waiting:
        return Batch(0, 0, n_running)
    n_prompts = 2 if len(waiting) > 1 else 1
    return Batch(sum(waiting.popleft() for _ in range(n_prompts)), n_prompts, 0)


def _chunked(waiting: deque[int], n_running: int) -> Batch:
    """A prompt that is not through goes on in the next iteration, and has a row in each."""
    if not waiting:
        return Batch(0, 0, n_running)
    taken = min(waiting[0], _BUDGET - n_running)
    waiting[0] -= taken
    if not waiting[0]:
        waiting.popleft()
    return Batch(taken, 1, n_running)


def write_batch(writer: ProgramWriter, batch: Batch) -> None:
    """One iteration over these tokens."""
    layout = writer.layout
    writer.work(layout.between_ns, Phase.DATA)
    writer.label(Phase.FORWARD)
    size_bytes = layout.activation_bytes * batch.n_tokens
    writer.call("tp", Op.ALL_REDUCE, size_bytes, dtype=DType.BFLOAT16)  # embedding
    for _ in range(2 * layout.layers):
        writer.work(layout.forward_ns * (1 + batch.n_tokens / 64) / 2, Phase.FORWARD)
        writer.call("tp", Op.ALL_REDUCE, size_bytes, dtype=DType.BFLOAT16)
    writer.call("tp", Op.ALL_GATHER, _ROW_BYTES * batch.n_rows, dtype=DType.BFLOAT16)
    writer.work(layout.optimizer_ns, Phase.FORWARD)


def idle(writer: ProgramWriter) -> None:
    """Nobody asks for anything; ranks that keep in step go on agreeing on empty batches."""
    writer.label(Phase.IDLE)
    n_rounds = _IDLE_ROUNDS if writer.layout.schedule is Schedule.SERVING_EP else 1
    for _ in range(n_rounds):
        writer.work(writer.layout.idle_ns / n_rounds, Phase.IDLE)
        writer.label(Phase.IDLE)
        if writer.layout.schedule is Schedule.SERVING_EP:
            _agree(writer)


def _write_iteration(writer: ProgramWriter, factor: int) -> None:
    layout = writer.layout
    is_expert = layout.schedule is Schedule.SERVING_EP
    writer.work(layout.between_ns, Phase.DATA)
    writer.label(Phase.FORWARD)
    if is_expert:
        _agree(writer)
    size_bytes = layout.activation_bytes * factor
    writer.call("tp", Op.ALL_REDUCE, size_bytes, dtype=DType.BFLOAT16)  # embedding
    for _ in range(layout.layers):
        writer.work(layout.forward_ns * factor, Phase.FORWARD)
        writer.call("tp", Op.ALL_REDUCE, size_bytes, dtype=DType.BFLOAT16)
        for _ in range(2 if is_expert else 0):
            writer.call("ep", Op.ALL_TO_ALL, size_bytes, dtype=DType.BFLOAT16)
        if not is_expert:
            writer.call("tp", Op.ALL_REDUCE, size_bytes, dtype=DType.BFLOAT16)
    writer.call("tp", Op.ALL_GATHER, 65_536, dtype=DType.BFLOAT16)  # logits
    writer.work(layout.optimizer_ns, Phase.FORWARD)  # sampling


def _agree(writer: ProgramWriter) -> None:
    writer.call("dp", Op.ALL_GATHER, 8, dtype=DType.INT64)


def write_tensor(writer: ProgramWriter) -> None:
    """Training with nothing but TP; with sequence parallel the layer norms are reduced last."""
    layout = writer.layout
    writer.work(layout.between_ns, Phase.DATA)
    for phase, duration_ns in (
        (Phase.FORWARD, layout.forward_ns),
        (Phase.BACKWARD, layout.backward_ns),
    ):
        for layer in range(layout.layers):  # attention and feed-forward in turns: unequal work
            writer.work(duration_ns * (4 - 2 * (layer % 2)) / 3, phase)
            if layout.has_sequence_parallel:
                size_bytes = layout.activation_bytes // writer.size("tp")
                writer.call("tp", Op.ALL_GATHER, size_bytes)
                writer.call("tp", Op.REDUCE_SCATTER, layout.activation_bytes)
            else:
                writer.call("tp", Op.ALL_REDUCE, layout.activation_bytes)
    writer.label(Phase.GRAD_SYNC)
    for _ in range(2 * layout.layers if layout.has_sequence_parallel else 0):
        writer.call("tp", Op.ALL_REDUCE, 4_096)
    writer.work(layout.optimizer_ns, Phase.OPTIMIZER)
