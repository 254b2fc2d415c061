"""Data parallel frameworks: DDP with accumulation, FSDP1, FSDP2 with accumulation, ZeRO 1 to 3.

FSDP1 gathers the root and every block in the forward pass, and every block again in the backward
pass, one ahead; the root keeps its parameters. DeepSpeed ends a step with the overflow check
(fp16), the norm and an all-gather of what was updated; ZeRO-2 and 3 reduce in every microbatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from comminsight.model.ops import DType, Op
from comminsight.sim.layout import Schedule
from comminsight.sim.program import SCALAR_BYTES, Phase, ProgramWriter

N_PARAMETER_GROUPS = 2  # DeepSpeed gathers each with its own call


def write_ddp_accumulated(writer: ProgramWriter) -> None:
    """Only the last microbatch reduces."""
    layout = writer.layout
    _accumulated(writer, [layout.bucket_bytes] * layout.buckets)


def write_first_ddp_accumulated(writer: ProgramWriter) -> None:
    """All gradients in one bucket."""
    _accumulated(writer, [writer.layout.bucket_bytes * writer.layout.buckets])


def _accumulated(writer: ProgramWriter, sizes_bytes: Sequence[int]) -> None:
    layout = writer.layout
    writer.work(layout.between_ns, Phase.DATA)
    for _ in range(layout.microbatches - 1):
        writer.work(layout.forward_ns * layout.layers, Phase.FORWARD)
        writer.work(layout.backward_ns * layout.layers, Phase.BACKWARD)
    writer.work(layout.forward_ns * layout.layers, Phase.FORWARD)
    _buckets(writer, Op.ALL_REDUCE, sizes_bytes)
    writer.work(layout.optimizer_ns, Phase.OPTIMIZER)
    writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)


def write_ddp_pair(writer: ProgramWriter) -> None:
    """One model after the other: forward, backward, optimizer; then a loss."""
    layout = writer.layout
    _pair(writer, layout.pair_bytes, [layout.bucket_bytes] * layout.buckets)


def write_first_ddp_pair(writer: ProgramWriter) -> None:
    """All gradients of each model in one bucket."""
    layout = writer.layout
    _pair(writer, [sum(layout.pair_bytes)], [layout.bucket_bytes * layout.buckets])


def _pair(writer: ProgramWriter, first_bytes: Sequence[int], second_bytes: Sequence[int]) -> None:
    layout = writer.layout
    writer.work(layout.between_ns, Phase.DATA)
    for sizes_bytes in (first_bytes, second_bytes):
        writer.work(layout.forward_ns * layout.layers, Phase.FORWARD)
        _buckets(writer, Op.ALL_REDUCE, sizes_bytes)
        writer.work(layout.optimizer_ns, Phase.OPTIMIZER)
    writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)


def write_fsdp1(writer: ProgramWriter) -> None:
    """Gathers and scatters in every microbatch and, with clipping, a norm of one number."""
    layout = writer.layout
    writer.work(layout.between_ns, Phase.DATA)
    n_units = layout.layers + 1  # the root is one
    for microbatch in range(layout.microbatches):
        writer.label(Phase.FORWARD, microbatch)
        for _ in range(n_units):
            writer.wait(_gather(writer))
            writer.work(layout.forward_ns, Phase.FORWARD)
        scatters = _backward(writer, layout.layers, has_scatter=True)
        scatters.append(writer.issue("dp", Op.REDUCE_SCATTER, layout.bucket_bytes))
        for slot in scatters:
            writer.wait(slot)
    if layout.has_clipping:
        writer.label(Phase.OPTIMIZER)
        writer.call("dp", Op.ALL_REDUCE, SCALAR_BYTES)
    writer.work(layout.optimizer_ns, Phase.OPTIMIZER)


def write_fsdp2_accumulated(writer: ProgramWriter) -> None:
    """Gathers in every microbatch, scatters in the last, one norm with as many numbers as
    parameters."""
    layout = writer.layout
    writer.work(layout.between_ns, Phase.DATA)
    for microbatch in range(layout.microbatches):
        writer.label(Phase.FORWARD, microbatch)
        _forward(writer)
        writer.label(Phase.BACKWARD, microbatch)
        is_last = microbatch + 1 == layout.microbatches
        for slot in _backward(writer, layout.layers, has_scatter=is_last):
            writer.wait(slot)
    if layout.has_clipping:
        writer.label(Phase.OPTIMIZER)
        n_trained = layout.layers - len(layout.frozen)
        writer.call("dp", Op.ALL_REDUCE, SCALAR_BYTES * 4 * n_trained)
    writer.work(layout.optimizer_ns, Phase.OPTIMIZER)


def write_zero1(writer: ProgramWriter) -> None:
    """Gradients all-reduced at the boundary of accumulation, parameters gathered by group."""
    layout = writer.layout
    writer.work(layout.between_ns, Phase.DATA)
    for _ in range(layout.microbatches - 1):
        writer.work((layout.forward_ns + layout.backward_ns) * layout.layers, Phase.BACKWARD)
    writer.work(layout.forward_ns * layout.layers, Phase.FORWARD)
    _buckets(writer, Op.ALL_REDUCE)
    _deepspeed_step(writer, N_PARAMETER_GROUPS)


def write_zero2(writer: ProgramWriter) -> None:
    """Each bucket reduced to its owner, in every microbatch."""
    layout = writer.layout
    writer.work(layout.between_ns, Phase.DATA)
    for microbatch in range(layout.microbatches):
        writer.label(Phase.FORWARD, microbatch)
        writer.work(layout.forward_ns * layout.layers, Phase.FORWARD)
        _buckets(writer, Op.REDUCE)
    _deepspeed_step(writer, N_PARAMETER_GROUPS)


def write_zero3(writer: ProgramWriter) -> None:
    """As FSDP in every microbatch; the parameters that are never released are gathered last."""
    layout = writer.layout
    writer.work(layout.between_ns, Phase.DATA)
    for microbatch in range(layout.microbatches):
        writer.label(Phase.FORWARD, microbatch)
        _forward(writer)
        for slot in _backward(writer, layout.layers, has_scatter=True):
            writer.wait(slot)
    _deepspeed_step(writer, 1)


def evaluate_data(writer: ProgramWriter) -> None:
    """Forward passes, then one number: sharded jobs gather, the others are silent."""
    layout = writer.layout
    is_sharded = layout.schedule not in {
        Schedule.DDP_ACCUMULATED, Schedule.DDP_PAIR, Schedule.ZERO1, Schedule.ZERO2
    }  # fmt: skip
    for _ in range(layout.eval_batches):
        for _ in range(layout.layers):
            writer.label(Phase.EVALUATION)
            if is_sharded:
                writer.wait(_gather(writer))
            writer.work(layout.forward_ns, Phase.EVALUATION)
    writer.call("world", Op.ALL_REDUCE, SCALAR_BYTES)


def _gather(writer: ProgramWriter) -> int:
    return writer.issue("dp", Op.ALL_GATHER, writer.layout.bucket_bytes // writer.size("dp"))


def _forward(writer: ProgramWriter) -> None:
    for current in _gathered_ahead(writer, writer.layout.layers):
        writer.wait(current)
        writer.work(writer.layout.forward_ns, Phase.FORWARD)
        if writer.layout.layer_reduce_bytes:
            writer.call("dp", Op.ALL_REDUCE, writer.layout.layer_reduce_bytes)


def _backward(writer: ProgramWriter, n_blocks: int, *, has_scatter: bool) -> list[int]:
    """Gathers again from the last block to the first that is trained, one block ahead; the slots
    of the scatters."""
    scatters = []
    writer.phase = Phase.BACKWARD
    trained = sorted(set(range(n_blocks)) - set(writer.layout.frozen), reverse=True)
    for nth, current in enumerate(_gathered_ahead(writer, n_blocks - trained[-1])):
        writer.wait(current)
        writer.work(writer.layout.backward_ns, Phase.BACKWARD)
        if has_scatter and n_blocks - 1 - nth in trained:
            scatters.append(writer.issue("dp", Op.REDUCE_SCATTER, writer.layout.bucket_bytes))
    return scatters


def _gathered_ahead(writer: ProgramWriter, n_blocks: int) -> Iterator[int]:
    """Slots of the gathers, each yielded after the next one was issued."""
    ahead = _gather(writer)
    for block in range(n_blocks):
        current, ahead = ahead, _gather(writer) if block + 1 < n_blocks else -1
        yield current


def _buckets(writer: ProgramWriter, op: Op, sizes_bytes: Sequence[int] = ()) -> None:
    """The backward pass, with the buckets that become ready in it."""
    layout = writer.layout
    sizes_bytes = sizes_bytes or [layout.bucket_bytes] * layout.buckets
    slots = []
    for bucket, size_bytes in enumerate(sizes_bytes):
        writer.work(layout.backward_ns * layout.layers / len(sizes_bytes), Phase.BACKWARD)
        writer.phase = Phase.GRAD_SYNC
        root = bucket % writer.size("dp") if op is Op.REDUCE else -1
        slots.append(writer.issue("dp", op, size_bytes, peer=root))
    for slot in slots:
        writer.wait(slot)


def _deepspeed_step(writer: ProgramWriter, n_gathers: int) -> None:
    """Overflow, norm, update, gathers of the updated parameters."""
    layout = writer.layout
    writer.label(Phase.OPTIMIZER)
    if layout.is_fp16:
        writer.call("dp", Op.ALL_REDUCE, 1, dtype=DType.UINT8)
    writer.call("dp", Op.ALL_REDUCE, SCALAR_BYTES)
    writer.work(layout.optimizer_ns, Phase.OPTIMIZER)
    for _ in range(n_gathers):
        size_bytes = layout.bucket_bytes // writer.size("dp") // 2
        writer.call("dp", Op.ALL_GATHER, size_bytes, dtype=DType.BFLOAT16)


DATA_WRITERS: dict[Schedule, Callable[[ProgramWriter], None]] = {
    Schedule.DDP_ACCUMULATED: write_ddp_accumulated,
    Schedule.DDP_PAIR: write_ddp_pair,
    Schedule.FSDP1: write_fsdp1,
    Schedule.FSDP2_ACCUMULATED: write_fsdp2_accumulated,
    Schedule.ZERO1: write_zero1,
    Schedule.ZERO2: write_zero2,
    Schedule.ZERO3: write_zero3,
}
FIRST_WRITERS: dict[Schedule, Callable[[ProgramWriter], None]] = {  # before buckets are settled
    Schedule.DDP_ACCUMULATED: write_first_ddp_accumulated,
    Schedule.DDP_PAIR: write_first_ddp_pair,
}
