"""What each framework does in a step, as programs.

The order of ops is what the frameworks were observed to emit: DDP issues bucket all-reduces while
the backward pass runs, in its first step a single one for all gradients; FSDP2 emits 2
all-gathers and 1 reduce-scatter per layer and one norm all-reduce; 1F1B warms up
``PP - stage - 1`` forwards. Every Megatron-like step ends with a one-element all-reduce on the
default group. The other frameworks and the frame of a job (evaluation, checkpoints, idle time)
stand in ``schedules_*``.
"""

from __future__ import annotations

from comminsight.model.ops import DType, Op
from comminsight.sim.groups import SimGroup
from comminsight.sim.layout import Schedule, SimLayout
from comminsight.sim.program import SCALAR_BYTES, Phase, Program, ProgramWriter, with_shared_ops
from comminsight.sim.schedules_data import evaluate_data
from comminsight.sim.schedules_job import Writer, programs_of_steps


def step_programs(
    layout: SimLayout,
    groups: tuple[SimGroup, ...],
    dimensions: dict[str, int],
    global_rank: int,
    steps: int,
) -> list[Program]:
    """The programs of all steps of one rank. They share one op table and one segment table."""

    def written(write: Writer) -> Program:
        writer = ProgramWriter(layout, groups, dimensions, global_rank)
        write(writer)
        return writer.program

    if layout.schedule not in _WRITERS:
        n_steps = layout.n_steps(global_rank, steps)
        return programs_of_steps(layout, n_steps, written)
    write = _WRITERS[layout.schedule]
    if layout.eval_every or layout.checkpoint_every:
        own = _framed(write), _EVALUATIONS.get(layout.schedule, evaluate_data)
        return programs_of_steps(layout, steps, written, own)
    writers = [write]
    if layout.has_startup and layout.schedule is Schedule.DDP:
        writers = [_write_first_ddp, _write_second_ddp, write]
    programs = with_shared_ops([written(_framed(write)) for write in writers])
    return [programs[min(step, len(programs) - 1)] for step in range(steps)]


def _framed(write: Writer) -> Writer:
    """Data loading before, the optimizer after."""

    def framed(writer: ProgramWriter) -> None:
        writer.work(writer.layout.between_ns, Phase.DATA)
        write(writer)
        writer.work(writer.layout.optimizer_ns, Phase.OPTIMIZER)

    return framed


def _write_first_ddp(writer: ProgramWriter) -> None:
    """Set-up of the wrapper (parameter count, shapes, parameters), then one bucket for all."""
    layout = writer.layout
    total_bytes = layout.bucket_bytes * layout.buckets
    writer.call("dp", Op.ALL_GATHER, 8, dtype=DType.INT64)
    writer.call("dp", Op.BROADCAST, 48 * 8, dtype=DType.INT64, peer=0)
    writer.call("dp", Op.BROADCAST, total_bytes, peer=0)
    writer.work(layout.forward_ns * layout.layers, Phase.FORWARD)
    for _ in range(layout.buckets):
        writer.work(layout.backward_ns * layout.layers / layout.buckets, Phase.BACKWARD)
    writer.label(Phase.GRAD_SYNC)
    writer.wait(writer.issue("dp", Op.ALL_REDUCE, total_bytes))
    if layout.has_loss_reduce:
        writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)


def _write_second_ddp(writer: ProgramWriter) -> None:
    """The reducer agrees on its new buckets before it uses them."""
    writer.call("dp", Op.BROADCAST, 17 * 4, dtype=DType.INT32, peer=0)
    writer.call("dp", Op.BROADCAST, 4 * 4, dtype=DType.INT32, peer=0)
    _write_ddp(writer)


def _write_ddp(writer: ProgramWriter) -> None:
    layout = writer.layout
    writer.work(layout.forward_ns * layout.layers, Phase.FORWARD)
    slots = []
    for _ in range(layout.buckets):
        writer.work(layout.backward_ns * layout.layers / layout.buckets, Phase.BACKWARD)
        writer.label(Phase.GRAD_SYNC)
        slots.append(writer.issue("dp", Op.ALL_REDUCE, layout.bucket_bytes))
    for slot in slots:
        writer.wait(slot)
    if layout.has_loss_reduce:
        writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)


def _write_fsdp2(writer: ProgramWriter) -> None:
    layout = writer.layout
    shard_bytes = layout.bucket_bytes // layout.dp

    def gather() -> int:
        return writer.issue("dp", Op.ALL_GATHER, shard_bytes)

    def walk(phase: Phase, duration_ns: int, scatters: list[int]) -> None:
        ahead = gather()
        for layer in range(layout.layers):
            current, ahead = ahead, gather() if layer + 1 < layout.layers else -1
            writer.wait(current)
            writer.work(duration_ns, phase)
            if phase is Phase.BACKWARD:
                scatters.append(writer.issue("dp", Op.REDUCE_SCATTER, layout.bucket_bytes))

    scatters: list[int] = []
    walk(Phase.FORWARD, layout.forward_ns, scatters)
    walk(Phase.BACKWARD, layout.backward_ns, scatters)
    for slot in scatters:
        writer.wait(slot)
    writer.call("dp", Op.ALL_REDUCE, SCALAR_BYTES * 4 * layout.layers)


def _write_megatron(writer: ProgramWriter) -> None:
    layout = writer.layout
    passes = _PipelinePasses(writer)
    warm_up = min(layout.microbatches, layout.pp - writer.place.pp - 1)
    for _ in range(warm_up):
        passes.forward()
    for microbatch in range(layout.microbatches):
        if microbatch < layout.microbatches - warm_up:
            passes.forward()
        passes.backward()
        _reduce_metric(writer)
    passes.finish()
    if layout.has_late_gradients:
        writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)
    writer.label(Phase.GRAD_SYNC)
    slots = [writer.issue("dp", Op.ALL_REDUCE, layout.bucket_bytes) for _ in range(layout.buckets)]
    for slot in slots:
        writer.wait(slot)
    writer.label(Phase.OPTIMIZER)
    if not layout.has_late_gradients:
        writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)


def _evaluate_megatron(writer: ProgramWriter) -> None:
    passes = _PipelinePasses(writer, is_evaluation=True)
    for _ in range(writer.layout.eval_batches):
        passes.forward()
        _reduce_metric(writer)
    passes.finish()
    writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)


def _reduce_metric(writer: ProgramWriter) -> None:
    if writer.layout.has_batch_metric:
        writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)


class _PipelinePasses:
    """Forward and backward of one microbatch; a send is waited for before the next one that way."""

    def __init__(self, writer: ProgramWriter, *, is_evaluation: bool = False) -> None:
        self._writer = writer
        self._is_evaluation = is_evaluation
        self._stage = writer.place.pp
        self._last = writer.layout.pp - 1
        self._sends = {-1: -1, +1: -1}
        self._n_passes = {Phase.FORWARD: 0, Phase.BACKWARD: 0}

    def forward(self) -> None:
        layout = self._writer.layout
        self._begin(Phase.FORWARD)
        self._receive(-1)
        self._layers(layout.forward_ns, Phase.FORWARD)
        self._send(+1)

    def backward(self) -> None:
        layout = self._writer.layout
        self._begin(Phase.BACKWARD)
        self._receive(+1)
        self._layers(layout.backward_ns, Phase.BACKWARD)
        self._send(-1)

    def finish(self) -> None:
        for slot in self._sends.values():
            self._writer.wait(slot)

    def _begin(self, phase: Phase) -> None:
        shown = Phase.EVALUATION if self._is_evaluation else phase
        self._writer.label(shown, self._n_passes[phase])
        self._n_passes[phase] += 1

    def _layers(self, duration_ns: int, phase: Phase) -> None:
        for _ in range(self._writer.layout.layers):
            self._writer.work(duration_ns, Phase.EVALUATION if self._is_evaluation else phase)
            self._writer.call("tp", Op.ALL_REDUCE, self._writer.layout.activation_bytes)

    def _receive(self, direction: int) -> None:
        peer = self._stage + direction
        if 0 <= peer <= self._last:
            self._writer.call("pp", Op.RECV, self._writer.layout.activation_bytes, peer=peer)

    def _send(self, direction: int) -> None:
        peer = self._stage + direction
        if 0 <= peer <= self._last:
            self._writer.wait(self._sends[direction])
            size_bytes = self._writer.layout.activation_bytes
            self._sends[direction] = self._writer.issue("pp", Op.SEND, size_bytes, peer=peer)


def _write_moe(writer: ProgramWriter) -> None:
    layout = writer.layout
    for _ in range(layout.microbatches):
        _exchange(writer, Phase.FORWARD, layout.forward_ns)
        _exchange(writer, Phase.BACKWARD, layout.backward_ns)
        _reduce_metric(writer)
    if layout.has_late_gradients:
        writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)
    writer.label(Phase.GRAD_SYNC)
    slots = [
        writer.issue("world", Op.ALL_REDUCE, layout.bucket_bytes) for _ in range(layout.buckets)
    ]
    for slot in slots:
        writer.wait(slot)
    if not layout.has_late_gradients:
        writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)


def _exchange(writer: ProgramWriter, phase: Phase, duration_ns: int) -> None:
    """The tokens of one pass through all layers, to their experts and back."""
    for _ in range(2 * writer.layout.layers):
        writer.work(duration_ns / 2, phase)
        size_bytes = writer.layout.activation_bytes
        writer.call("ep", Op.ALL_TO_ALL, size_bytes, dtype=DType.BFLOAT16)


def _evaluate_moe(writer: ProgramWriter) -> None:
    for _ in range(writer.layout.eval_batches):
        _exchange(writer, Phase.EVALUATION, writer.layout.forward_ns)
        _reduce_metric(writer)
    writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)


_WRITERS: dict[Schedule, Writer] = {
    Schedule.DDP: _write_ddp,
    Schedule.FSDP2: _write_fsdp2,
    Schedule.MEGATRON: _write_megatron,
    Schedule.MOE: _write_moe,
}
_EVALUATIONS: dict[Schedule, Writer] = {
    Schedule.MEGATRON: _evaluate_megatron,
    Schedule.MOE: _evaluate_moe,
}
