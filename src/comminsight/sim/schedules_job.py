"""The frame of a job around its steps: idle time, prefills, evaluation, checkpoints.

A step is a part *before* (nobody asks for anything), the step itself and parts *after* (an
evaluation, a checkpoint). Only the ops of the step itself belong to it; those of the parts around
it carry their own phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from comminsight.model.ops import Op
from comminsight.sim.layout import Batching, Schedule, SimLayout
from comminsight.sim.program import Phase, Program, ProgramWriter, joined
from comminsight.sim.schedules_data import DATA_WRITERS, FIRST_WRITERS, evaluate_data
from comminsight.sim.schedules_megatron import evaluate_megatron, write_megatron_core
from comminsight.sim.schedules_pipeline import write_pipeline
from comminsight.sim.schedules_serving import (
    batches_of,
    idle,
    write_batch,
    write_decode,
    write_prefill,
    write_tensor,
)

Writer = Callable[[ProgramWriter], None]


def write_checkpoint(writer: ProgramWriter) -> None:
    """Everybody waits while the state is written."""
    writer.label(Phase.CHECKPOINT)
    writer.call("world", Op.BARRIER, 0)
    writer.work(writer.layout.checkpoint_ns, Phase.CHECKPOINT)
    writer.call("world", Op.BARRIER, 0)


_STEPS: Mapping[Schedule, Writer] = {
    **DATA_WRITERS,
    Schedule.MEGATRON_CORE: write_megatron_core,
    Schedule.PIPELINE: write_pipeline,
    Schedule.TENSOR: write_tensor,
    Schedule.SERVING: write_decode,
    Schedule.SERVING_EP: write_decode,
}
_STEP, _PREFILL, _IDLE, _EVALUATION, _CHECKPOINT, _FIRST = range(6)


def programs_of_steps(
    layout: SimLayout,
    steps: int,
    written: Callable[[Writer], Program],
    own: tuple[Writer, Writer] | None = None,
) -> list[Program]:
    """The programs of all steps of one rank; ``written`` runs a writer for that rank. ``own`` are
    step and evaluation of a schedule that is written elsewhere."""
    if layout.batching is not Batching.FIXED:
        return _programs_of_batches(layout, steps, written)
    is_megatron = layout.schedule is Schedule.MEGATRON_CORE
    evaluate: Writer = evaluate_megatron if is_megatron else evaluate_data
    write, evaluate = own or (_STEPS[layout.schedule], evaluate)
    first = FIRST_WRITERS.get(layout.schedule, write)
    writers = (write, write_prefill, idle, evaluate, write_checkpoint, first)
    plans = [_plan(layout, step) for step in range(steps)]
    used = sorted({part for plan in plans for part in plan})
    programs = [written(writers[part]) for part in used]
    kinds = list(dict.fromkeys(plans))
    made = dict(
        zip(kinds, joined(programs, [[used.index(p) for p in plan] for plan in kinds]), strict=True)
    )
    return [made[plan] for plan in plans]


def _programs_of_batches(
    layout: SimLayout, steps: int, written: Callable[[Writer], Program]
) -> list[Program]:
    """An iteration per batch."""
    batches = batches_of(layout.batching, steps)
    kinds = list(dict.fromkeys(batches))
    programs = [written(partial(write_batch, batch=kind)) for kind in kinds]
    made = dict(zip(kinds, joined(programs, [[n] for n in range(len(kinds))]), strict=True))
    return [made[batch] for batch in batches]


def _plan(layout: SimLayout, step: int) -> tuple[int, ...]:
    """The parts of one step in order."""
    nth = step + 1
    plan = [_IDLE] if _is_due(nth, layout.idle_every) else []
    is_first = step == 0 and layout.has_startup
    plan.append(_FIRST if is_first else _PREFILL if _is_due(nth, layout.prefill_every) else _STEP)
    plan += [_EVALUATION] if _is_due(nth, layout.eval_every) else []
    plan += [_CHECKPOINT] if _is_due(nth, layout.checkpoint_every) else []
    return tuple(plan)


def _is_due(nth: int, every: int) -> bool:
    return every > 0 and nth % every == 0
