"""Backward passes told apart by the bytes that they reduce: of one model, or of several in turns.

One run of reductions may be one backward pass or those of two models (a generator right behind its
discriminator), with an optimizer and a forward pass between that no op shows. Before its buckets
are settled DDP reduces all gradients of a model in one op: each op of the job's first step carries
the bytes of one backward pass. Later runs fall into passes of as many bytes, or nothing is said.
A first step with several buckets per model proves nothing: its passes come out as single ops.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from comminsight.model.step import PhaseKind
from comminsight.semantics.phase_plan import PlannedPhase, stretch, sync_phase
from comminsight.semantics.phase_symbols import N_WEIGHTS, Sign, weight_of

MAX_FIRST_GRADIENTS = 64  # of the first step; more are no models
_MAX_SYNCS = 64  # single reductions shown as gradients in flight


def first_gradients(numbers: np.ndarray, signs: np.ndarray) -> tuple[int, ...]:
    """Weights of the reductions of a session's first step; empty where there are too many."""
    found = numbers[signs == Sign.REDUCE]
    return tuple(map(weight_of, found.tolist())) if len(found) <= MAX_FIRST_GRADIENTS else ()


def backward_passes(
    numbers: np.ndarray, signs: np.ndarray, gradients: np.ndarray, of_first_step: tuple[int, ...]
) -> list[PlannedPhase]:
    """What lies between the first and the last of these reductions, and gradients in flight.

    ``of_first_step`` are the ``first_gradients`` of the session. What lies between two passes, or
    in one that other ops break into, is UNKNOWN.
    """
    passes = _one_engine(signs, gradients) or _passes(numbers, gradients, of_first_step)
    is_known = bool(passes)
    passes = passes or [gradients[n : n + 1] for n in range(len(gradients))]
    plan: list[PlannedPhase] = []
    at, end = int(gradients[0]), int(gradients[-1])
    for own in passes:
        if _is_whole(own) and len(own) > 1:
            plan += _between(at, int(own[0]))
            at = int(own[-1])
            plan.append(stretch(PhaseKind.BACKWARD, int(own[0]), at))
    plan += _between(at, end)
    is_shown = is_known or (_is_whole(gradients) and len(gradients) <= _MAX_SYNCS)
    shown = [own for own in passes if is_shown and _is_whole(own)]
    return plan + [sync_phase(int(own[0]), int(own[-1]), len(own)) for own in shown]


def _passes(
    numbers: np.ndarray, gradients: np.ndarray, of_first_step: tuple[int, ...]
) -> list[np.ndarray]:
    """The reductions of each pass: in order, as many bytes each as the first step says."""
    sums = np.cumsum([weight_of(number) for number in numbers[gradients].tolist()])
    sums %= N_WEIGHTS
    cuts = [0]
    for wanted in (np.cumsum(of_first_step, dtype=np.int64) % N_WEIGHTS).tolist():
        found = np.flatnonzero(sums[cuts[-1] :] == wanted)
        if not len(found):
            return []
        cuts.append(cuts[-1] + int(found[0]) + 1)
    is_all = cuts[-1] == len(gradients)
    return [gradients[start:until] for start, until in pairwise(cuts)] if is_all else []


def _one_engine(signs: np.ndarray, gradients: np.ndarray) -> list[np.ndarray]:
    """ZeRO: a single round of checks and gathers behind the gradients is of a single model."""
    after = signs[int(gradients[-1]) + 1 :]
    n_checks = int((after == Sign.SCALAR).sum())
    is_round = 0 < n_checks < len(after) and bool((after[:n_checks] == Sign.SCALAR).all())
    is_round = is_round and bool((after[n_checks:] == Sign.GATHER).all())
    return [gradients] if is_round and _is_whole(gradients) else []


def _is_whole(ops: np.ndarray) -> bool:
    """Whether no other op lies between them."""
    return int(ops[-1]) - int(ops[0]) + 1 == len(ops)


def _between(first: int, until: int) -> list[PlannedPhase]:
    return [stretch(PhaseKind.UNKNOWN, first, until)] if until > first else []
