"""Phases of jobs that gather parameters and scatter gradients: FSDP, HSDP, ZeRO-3.

Every unit of the model is gathered in the forward pass and its gradient is scattered once, so that
there are as many gathers in a forward pass as scatters in the backward pass. Units gathered again
open the backward pass. A forward pass behind a backward pass begins with several gathers in a row.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from comminsight.model.step import PhaseKind
from comminsight.semantics.phase_plan import (
    PlannedPhase,
    counted,
    gradient_sync,
    optimizer,
    stretch,
)
from comminsight.semantics.phase_symbols import Sign
from comminsight.semantics.rounds import FORWARD_GATHERS

_MAX_ALONE = 2  # rounds: of so few, one may be an evaluation
_FIRST_SCATTER_AFTER = 2  # gathers of a backward pass, one of them ahead


def is_sharded(signs: np.ndarray) -> bool:
    """Whether parameters are gathered before gradients are scattered."""
    gathers, scatters = _positions(signs)
    return bool(len(gathers) and len(scatters) and gathers[0] < scatters[0])


def is_in_turns(signs: np.ndarray) -> bool:
    """Whether a scatter follows the first gather at once, and others later: sequence parallel
    layers on a group that is taken for a data parallel one. Sharded units are first all gathered.
    """
    gathers, scatters = _positions(signs)
    return len(scatters) > 1 and int(np.searchsorted(gathers, scatters[0])) == 1


def sharded_plan(numbers: np.ndarray, signs: np.ndarray) -> list[PlannedPhase]:
    """Forward and backward of each microbatch, the scatters, the optimizer."""
    gathers, scatters = _positions(signs)
    bounds = [*_microbatch_starts(signs, gathers), int(scatters[-1]) + 1]
    plan: list[PlannedPhase] = []
    if bounds[0] > 0:
        plan.append(stretch(PhaseKind.UNKNOWN, 0, bounds[0]))
    rounds = [
        (gathers[(gathers >= first) & (gathers < until)],
         scatters[(scatters >= first) & (scatters < until)])
        for first, until in pairwise(bounds)
    ]  # fmt: skip
    passes = [
        one
        for nth, own in enumerate(rounds)
        for one in _passes(*own, nth, is_only=len(rounds) == 1)
    ]
    plan += _numbered(passes, rounds, numbers)
    for first, until in pairwise(bounds):
        plan += gradient_sync(signs, first, until if until != bounds[-1] else 1 << 31)
    return plan + optimizer(signs)


def _numbered(
    passes: list[PlannedPhase], rounds: list[tuple[np.ndarray, np.ndarray]], numbers: np.ndarray
) -> list[PlannedPhase]:
    """The passes with the number of microbatches; without numbers where rounds move unlike
    gradients (they are of several models then) or one of them may hold several microbatches."""
    is_alike = len({(len(own), numbers[moved].tobytes()) for own, moved in rounds}) == 1
    if is_alike and all(one.microbatch >= 0 for one in passes):
        return list(counted(passes, passes[-1].microbatch + 1))
    return passes if len(rounds) == 1 else [replace(one, microbatch=-1) for one in passes]


def _positions(signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gathers up to the last scatter, and scatters."""
    scatters = np.flatnonzero(signs == Sign.SCATTER)
    gathers = np.flatnonzero(signs == Sign.GATHER)
    return gathers[gathers < scatters[-1]] if len(scatters) else gathers, scatters


def _microbatch_starts(signs: np.ndarray, gathers: np.ndarray) -> list[int]:
    """The first op, and the first of several gathers in a row behind a scatter."""
    moves = np.flatnonzero((signs == Sign.GATHER) | (signs == Sign.SCATTER))
    is_gather = signs[moves] == Sign.GATHER
    edges = np.flatnonzero(np.diff(is_gather.astype(np.int8), prepend=0, append=0))
    starts = [int(gathers[0])]
    for first, until in edges.reshape(-1, 2).tolist():
        if first > 0 and until - first >= FORWARD_GATHERS and moves[first] <= gathers[-1]:
            starts.append(int(moves[first]))
    return starts


def _passes(
    gathers: np.ndarray, scatters: np.ndarray, nth: int, *, is_only: bool
) -> list[PlannedPhase]:
    n_gathers, n_scatters = len(gathers), len(scatters)
    end = int(scatters[-1])
    if n_scatters < n_gathers <= 2 * n_scatters and _is_turn(gathers, scatters, n_scatters):
        turn = int(gathers[n_scatters])
        return [stretch(PhaseKind.FORWARD, int(gathers[0]), turn, nth),
                stretch(PhaseKind.BACKWARD, turn, end, nth)]  # fmt: skip
    if n_scatters == n_gathers and gathers[-1] < scatters[0]:
        last, first_scatter = int(gathers[-1]), int(scatters[0])
        # microbatches that neither gather nor scatter may lie between: the backward pass is the
        # last one's
        return [stretch(PhaseKind.FORWARD, int(gathers[0]), last, nth),
                stretch(PhaseKind.UNKNOWN, last, first_scatter),
                stretch(PhaseKind.BACKWARD, first_scatter, end)]  # fmt: skip
    if is_only and (turns := _accumulated(gathers, scatters)):
        starts = [*turns, end]
        return [
            stretch(
                PhaseKind.BACKWARD if n % 2 else PhaseKind.FORWARD, start, starts[n + 1], n // 2
            )
            for n, start in enumerate(turns)
        ]
    return [stretch(PhaseKind.UNKNOWN, int(gathers[0]), end)]


def _is_turn(gathers: np.ndarray, scatters: np.ndarray, turn: int) -> bool:
    """Whether the backward pass that scatters can begin at this gather: it gathers and scatters in
    turns. Gathers that all lie in front are of another forward pass: of the next microbatch where
    units stay gathered, or of another model."""
    n_before = int(np.searchsorted(gathers, scatters[0]))
    return turn < n_before <= turn + _FIRST_SCATTER_AFTER and n_before < len(gathers)


def _accumulated(gathers: np.ndarray, scatters: np.ndarray) -> list[int]:
    """Starts of all passes where only the last microbatch scatters; empty if it does not fit, or if
    other ops lie between the gathers and not in the same places of each round: an evaluation.

    A root that is gathered once makes an odd number of gathers per microbatch: certain numbers of
    microbatches could then be taken for others.
    """
    n_units = len(scatters)
    n_rounds, rest = divmod(len(gathers), 2 * n_units)
    if not _is_even(np.diff(gathers[gathers < scatters[0]]), 2 * n_units):
        return []
    if rest or n_rounds < 2 or n_rounds % (2 * n_units - 1) == 0:
        return []
    last_turn = (2 * n_rounds - 1) * n_units
    if not _is_turn(gathers, scatters, last_turn):
        return []
    starts: list[int] = gathers[::n_units].tolist()
    return starts


def _is_even(steps: np.ndarray, period: int) -> bool:
    """Whether gathers follow each other alike in all rounds; between two rounds alone that other
    ops part, one may be an evaluation."""
    n_rounds = len(steps) // period + 1
    if n_rounds <= _MAX_ALONE and (steps[period - 1 :: period] > 1).any():
        return False
    return bool((steps[period:] == steps[:-period]).all())
