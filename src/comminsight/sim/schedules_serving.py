"""Serving engines, where a decode iteration is the step, and tensor parallel training alone.

An iteration reduces the embedding and twice per layer inside TP and gathers the logits. With data
parallel attention and expert parallel layers the ranks first agree on their batch sizes (a small
all-gather that goes on while nobody asks for anything), then every layer has two all-to-alls.
"""

from __future__ import annotations

from comminsight.model.ops import DType, Op
from comminsight.sim.layout import Schedule
from comminsight.sim.program import Phase, ProgramWriter

_PREFILL_FACTOR = 16
_IDLE_ROUNDS = 5


def write_decode(writer: ProgramWriter) -> None:
    """One token for every sequence of the batch."""
    _write_iteration(writer, 1)


def write_prefill(writer: ProgramWriter) -> None:
    """The prompts of new sequences: larger messages, longer work."""
    _write_iteration(writer, _PREFILL_FACTOR)


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
