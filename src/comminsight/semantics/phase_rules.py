"""From the signs of a step's ops to the plan of its phases, by the kind of job they show.

What the ops do not tell is UNKNOWN: where the backward pass begins in a job whose layers
communicate alike both ways, or what lies between the reductions of several microbatches.
"""

from __future__ import annotations

import numpy as np

from comminsight.model.step import PhaseKind
from comminsight.semantics.phase_models import backward_passes
from comminsight.semantics.phase_pipeline import is_pipeline, pipeline_plan
from comminsight.semantics.phase_plan import (
    Plan,
    PlannedPhase,
    gradient_sync,
    optimizer,
    signs_of,
    stretch,
    sync_phase,
    where,
    whole,
)
from comminsight.semantics.phase_sharded import is_in_turns, is_sharded, sharded_plan
from comminsight.semantics.phase_symbols import GRADIENTS, INSIDE, REDUCED_INSIDE, Sign
from comminsight.semantics.phase_tensor import tensor_passes


def plan_of(
    numbers: np.ndarray, *, is_iteration: bool = False, of_first_step: tuple[int, ...] = ()
) -> Plan:
    """The phases of a step with these op numbers (``phase_signs``), at least one op.

    ``is_iteration``: the step is an iteration of a serving job, a forward pass from end to end.
    ``of_first_step`` are the ``first_gradients`` of the session.
    """
    if is_iteration:
        return (whole(PhaseKind.FORWARD, len(numbers)),)
    signs = signs_of(numbers)
    if is_pipeline(signs):
        plan = pipeline_plan(numbers, signs)
    elif is_in_turns(signs):
        plan = []
    elif is_sharded(signs):
        plan = sharded_plan(numbers, signs)
    else:
        plan = _replicated_plan(numbers, signs, of_first_step)
    return tuple(plan) or (whole(PhaseKind.UNKNOWN, len(signs)),)


def _replicated_plan(
    numbers: np.ndarray, signs: np.ndarray, of_first_step: tuple[int, ...]
) -> list[PlannedPhase]:
    """Gradients reduced on every rank. Without ops inside the layers buckets are reduced as the
    backward pass makes them: it lasts until the last bucket is ready."""
    gradients, inside = where(signs, GRADIENTS), where(signs, INSIDE)
    if not len(gradients):
        return _layer_norms(signs, inside)
    first, last = int(gradients[0]), int(gradients[-1])
    plan: list[PlannedPhase] = []
    inside = inside[inside < last]
    if passes := tensor_passes(signs):
        plan += passes
    elif len(inside):
        until = last if inside[-1] > first else first
        plan.append(stretch(PhaseKind.UNKNOWN, 0, until))
    else:
        plan += [stretch(PhaseKind.UNKNOWN, 0, first)] if first else []
        if (signs == Sign.REDUCE_ROOT).any():  # in every microbatch, perhaps
            return [*plan, stretch(PhaseKind.UNKNOWN, first, last), *optimizer(signs)]
        plan += backward_passes(numbers, signs, gradients, of_first_step)
        return [*plan, *optimizer(signs)]
    return [*plan, *gradient_sync(signs), *optimizer(signs)]


def _layer_norms(signs: np.ndarray, inside: np.ndarray) -> list[PlannedPhase]:
    """Sequence parallel alone: all-reduces behind the last scatter are gradients."""
    scatters = np.flatnonzero(signs == Sign.INNER_SCATTER)
    if not len(scatters):
        return []
    tail = inside[inside > scatters[-1]]
    if not len(tail) or len(where(signs[tail], REDUCED_INSIDE)) < len(tail):
        return []
    first, last = int(tail[0]), int(tail[-1])
    return [stretch(PhaseKind.UNKNOWN, 0, first), sync_phase(first, last, len(tail))]
