"""One iteration of Megatron-LM, in its own order and by its own group names.

Per microbatch: the batch broadcast inside TP on the first and the last stage, receive, per layer
TP collectives (two all-reduces, or all-gather and reduce-scatter twice with sequence parallel),
the ring of CP, the two all-to-alls of the experts, send; the last stage reduces its cross entropy
inside TP. Then: gradients (DP, EDP), layer norms (TP), one int32 over all ranks, the norm, the
update, the parameters, two numbers over the model, the loss on the last stage.
"""

from __future__ import annotations

from comminsight.model.ops import DType, Op
from comminsight.sim.layout import SimLayout
from comminsight.sim.program import SCALAR_BYTES, Phase, ProgramWriter
from comminsight.sim.schedules_pipeline import PipelineWriter


def write_megatron_core(writer: ProgramWriter) -> None:
    """A training step."""
    layout = writer.layout
    writer.work(layout.between_ns, Phase.DATA)
    PipelineWriter(writer, _ModelChunk(writer).write).write_step()
    _sync_gradients(writer)
    _optimizer(writer)


def evaluate_megatron(writer: ProgramWriter) -> None:
    """Forward passes only; the last stage reduces the loss."""
    chunk = _ModelChunk(writer)
    PipelineWriter(writer, chunk.write, is_evaluation=True).write_forwards(
        writer.layout.eval_batches
    )
    writer.label(Phase.EVALUATION)
    if chunk.has_head:
        writer.call("dp", Op.ALL_REDUCE, 2 * SCALAR_BYTES)


class _ModelChunk:
    """The layers of one chunk with their collectives."""

    def __init__(self, writer: ProgramWriter) -> None:
        self._writer, self._layout = writer, writer.layout
        self._stage = writer.comm_rank("pp")
        self.has_head = self._stage == writer.size("pp") - 1

    def write(self, phase: Phase, microbatch: int, is_head: bool) -> None:  # noqa: FBT001
        is_backward = phase is Phase.BACKWARD
        if not is_backward and (self._stage == 0 or self.has_head):
            for _ in range(2):
                self._writer.call("tp", Op.BROADCAST, 16_384, dtype=DType.INT64, peer=0)
        for _ in range(self._layout.layers):
            self._layer(phase, microbatch)
        if is_head and not is_backward:
            for _ in range(3):  # maximum, own target, sum of exponentials
                self._writer.call("tp", Op.ALL_REDUCE, 8_192)

    def _layer(self, phase: Phase, microbatch: int) -> None:
        layout, writer = self._layout, self._writer
        duration_ns = layout.backward_ns if phase is Phase.BACKWARD else layout.forward_ns
        for half in range(2):
            writer.work(duration_ns / 2, phase)
            writer.label(phase, microbatch)
            if half == 0:
                self._ring()
            elif layout.ep > 1:
                for _ in range(2):
                    size_bytes = layout.activation_bytes
                    writer.call("ep", Op.ALL_TO_ALL, size_bytes, dtype=DType.BFLOAT16)
            self._tensor()

    def _tensor(self) -> None:
        size_bytes = self._layout.activation_bytes
        if self._layout.has_sequence_parallel:
            self._writer.call("tp", Op.ALL_GATHER, size_bytes // self._writer.size("tp"))
            self._writer.call("tp", Op.REDUCE_SCATTER, size_bytes)
        else:
            self._writer.call("tp", Op.ALL_REDUCE, size_bytes)

    def _ring(self) -> None:
        """Keys and values go once around the context parallel group."""
        n, rank = self._writer.size("cp"), self._writer.comm_rank("cp")
        for _ in range(n - 1):
            size_bytes = self._layout.activation_bytes
            sent = self._writer.issue("cp", Op.SEND, size_bytes, peer=(rank + 1) % n)
            self._writer.call("cp", Op.RECV, size_bytes, peer=(rank - 1) % n)
            self._writer.wait(sent)


def _sync_gradients(writer: ProgramWriter) -> None:
    layout = writer.layout
    writer.label(Phase.GRAD_SYNC)
    op = Op.REDUCE_SCATTER if layout.has_dist_opt else Op.ALL_REDUCE
    slots = [
        writer.issue(dimension, op, layout.bucket_bytes)
        for dimension in ("dp", *(["edp"] if layout.ep > 1 else []))
        for _ in range(layout.buckets)
    ]
    for slot in slots:
        writer.wait(slot)
    if layout.has_sequence_parallel:
        writer.call("tp", Op.ALL_REDUCE, 4_096)


def _optimizer(writer: ProgramWriter) -> None:
    layout = writer.layout
    writer.label(Phase.OPTIMIZER)
    writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES, dtype=DType.INT32)
    whole = "dist_opt" if layout.has_dist_opt else "mp"
    if layout.is_fp16:
        writer.call(whole, Op.ALL_REDUCE, SCALAR_BYTES)
    writer.call(whole, Op.ALL_REDUCE, SCALAR_BYTES)
    writer.work(layout.optimizer_ns, Phase.OPTIMIZER)
    if layout.has_dist_opt:
        _gather_parameters(writer, layout)
    writer.call("mp", Op.ALL_REDUCE, SCALAR_BYTES, dtype=DType.INT32)
    writer.call("mp", Op.ALL_REDUCE, SCALAR_BYTES)
    if writer.comm_rank("pp") == writer.size("pp") - 1:
        writer.call("dp", Op.ALL_REDUCE, 2 * SCALAR_BYTES)


def _gather_parameters(writer: ProgramWriter, layout: SimLayout) -> None:
    for dimension in ("dp", *(["edp"] if layout.ep > 1 else [])):
        for _ in range(layout.buckets):
            size_bytes = layout.bucket_bytes // writer.size(dimension)
            writer.call(dimension, Op.ALL_GATHER, size_bytes)
