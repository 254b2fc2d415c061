"""Passes of tensor parallel layers, by the batch that is handed out and the loss that is reduced.

Layers communicate alike both ways. Megatron hands a batch to the tensor parallel ranks before each
forward pass and reduces its cross entropy among them at the end of it: three all-reduces in a row,
each far smaller than an activation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.model.step import PhaseKind
from comminsight.semantics.phase_plan import (
    Edge,
    PlannedPhase,
    counted,
    end_of,
    passes_end,
    start_of,
    stretch,
    where,
)
from comminsight.semantics.phase_symbols import INSIDE, Sign

_N_LOSS_OPS = 3  # maximum, own target, sum of exponentials
_LARGE = INSIDE - {Sign.LOSS, Sign.BATCH}


def loss_end(signs: np.ndarray, inside: Sequence[int]) -> int:
    """The last op of the only reduction of a loss among these ops inside layers; -1 where there is
    none, more than one, or nothing that is larger."""
    if not len(where(signs[list(inside)], _LARGE)):
        return -1
    runs = _runs(np.array([op for op in inside if signs[op] == Sign.LOSS], np.int64))
    if len(runs) != 1 or len(runs[0]) != _N_LOSS_OPS:
        return -1
    return int(runs[0][-1])


def tensor_passes(signs: np.ndarray) -> list[PlannedPhase]:
    """Forward and backward of each microbatch without a pipeline; empty where they are not told."""
    batches = [int(run[0]) for run in _runs(np.flatnonzero(signs == Sign.BATCH))]
    if not batches:
        return []
    ends: list[Edge] = [start_of(batch) for batch in batches[1:]]
    inside = where(signs, INSIDE)
    plan: list[PlannedPhase] = []
    first = batches[0]
    if first > 0:
        plan.append(stretch(PhaseKind.UNKNOWN, 0, first))
    for nth, batch in enumerate(batches):
        is_last = nth + 1 == len(batches)
        until = len(signs) if is_last else batches[nth + 1]
        own = inside[(inside >= batch) & (inside < until)]
        if is_last:
            own = own[own < _last_gradient_before_norms(signs)]
        loss = loss_end(signs, own.tolist())
        if loss < 0:
            return []
        end = passes_end(signs, loss) if is_last else ends[nth]
        plan += [
            PlannedPhase(PhaseKind.FORWARD, start_of(batch), end_of(loss), loss + 1 - batch, nth),
            PlannedPhase(PhaseKind.BACKWARD, end_of(loss), end, until - loss - 1, nth),
        ]
    return list(counted(plan, len(batches)))


def _last_gradient_before_norms(signs: np.ndarray) -> int:
    """What follows the last gradient inside the layers are gradients of layer norms."""
    found = np.flatnonzero((signs == Sign.REDUCE) | (signs == Sign.SCATTER))
    return int(found[-1]) if len(found) else len(signs)


def _runs(ops: np.ndarray) -> list[np.ndarray]:
    """Consecutive ops."""
    if not len(ops):
        return []
    return np.split(ops, np.flatnonzero(np.diff(ops) > 1) + 1)
