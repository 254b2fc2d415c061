"""A plan of a step's phases: which op's start or end bounds each of them.

Plans come from the order of the ops alone, so that steps with the same ops share one; the times of
a step are put in afterwards. An edge is two indices into ``start, end, start, end, …`` of the
step's ops, and means the earlier of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from comminsight.model.step import PhaseKind
from comminsight.semantics.phase_symbols import GRADIENTS, INSIDE, REDUCED_INSIDE, SIGN_MASK, Sign

Edge = tuple[int, int]


def start_of(op: int) -> Edge:
    """The start of the nth op of the step."""
    return 2 * op, 2 * op


def end_of(op: int) -> Edge:
    """Its end."""
    return 2 * op + 1, 2 * op + 1


def earlier(one: Edge, other: Edge) -> Edge:
    """The earlier of two edges that are each a single time."""
    return one[0], other[0]


@dataclass(frozen=True, slots=True)
class PlannedPhase:
    """One phase; with ``is_last_end`` it ends with the last of its ops ``first .. last`` to end.
    ``microbatch`` and ``n_microbatches`` as in ``Phase``."""

    kind: PhaseKind
    start: Edge
    end: Edge
    n_ops: int = 0
    microbatch: int = -1
    is_last_end: bool = False
    n_microbatches: int = 0


Plan = tuple[PlannedPhase, ...]


def counted(plan: Iterable[PlannedPhase], n_microbatches: int) -> Iterator[PlannedPhase]:
    """The plan of a step that has so many microbatches, told where a phase knows its own."""
    for one in plan:
        is_numbered = one.microbatch >= 0
        yield replace(one, n_microbatches=n_microbatches) if is_numbered else one


def whole(kind: PhaseKind, n_ops: int) -> PlannedPhase:
    """The step from end to end."""
    return PlannedPhase(kind, start_of(0), end_of(n_ops - 1), n_ops)


def stretch(kind: PhaseKind, first: int, until: int, microbatch: int = -1) -> PlannedPhase:
    """From the start of op ``first`` to that of op ``until``."""
    return PlannedPhase(kind, start_of(first), start_of(until), until - first, microbatch)


def signs_of(numbers: np.ndarray) -> np.ndarray:
    """The signs of a step's ops, small all-reduces told apart by the company they keep: with
    sharded gradients they are norms, otherwise gradients."""
    signs: np.ndarray = (numbers & SIGN_MASK).astype(np.uint8)
    small = Sign.SCALAR if (signs == Sign.SCATTER).any() else Sign.REDUCE
    signs[signs == Sign.SMALL] = small
    return signs


def where(signs: np.ndarray, wanted: frozenset[Sign]) -> np.ndarray:
    """The ops with one of these signs."""
    mask = np.zeros(SIGN_MASK + 1, np.bool_)
    mask[list(wanted)] = True
    return np.flatnonzero(mask.take(signs))


def gradient_sync(signs: np.ndarray, first: int = 0, until: int = 1 << 31) -> list[PlannedPhase]:
    """Gradients in flight, from the first op that moves some to the end of the last; those of
    layer norms, reduced inside the layers, follow at once."""
    found = where(signs, GRADIENTS)
    found = found[(found >= first) & (found < until)]
    if not len(found):
        return []
    last = int(found[-1])
    while last + 1 < len(signs) and Sign(signs[last + 1]) in REDUCED_INSIDE:
        last += 1
    return [sync_phase(int(found[0]), last, len(found))]


def passes_end(signs: np.ndarray, last: int) -> Edge:
    """Where the passes of a step end of which op ``last`` is one: at gradients that do not overlap
    them, or behind the last op inside a layer."""
    gradients = where(signs[last:], GRADIENTS) + last
    inside = where(signs[last:], INSIDE) + last
    if len(gradients):
        before = inside[inside < gradients[-1]]
        is_overlapped = len(before) and before[-1] > gradients[0]
        return start_of(int(gradients[-1] if is_overlapped else gradients[0]))
    if len(inside):
        return end_of(int(inside[-1]))
    return start_of(last + 1) if last + 1 < len(signs) else end_of(last)


def sync_phase(first: int, last: int, n_ops: int) -> PlannedPhase:
    """Gradients in flight from op ``first`` until all ops up to ``last`` have ended."""
    return PlannedPhase(PhaseKind.GRAD_SYNC, start_of(first), end_of(last), n_ops, is_last_end=True)


def optimizer(signs: np.ndarray) -> list[PlannedPhase]:
    """From the first norm, overflow check or gather behind all gradients to the end of the step."""
    after = last_gradient(signs) + 1
    found = where(signs[after:], frozenset({Sign.SCALAR, Sign.GATHER})) + after
    if not len(found) or not after:
        return []
    first = int(found[0])
    n_ops = len(signs) - first
    return [PlannedPhase(PhaseKind.OPTIMIZER, start_of(first), end_of(len(signs) - 1), n_ops)]


def last_gradient(signs: np.ndarray) -> int:
    """The last op that moves gradients; -1 for none."""
    found = where(signs, GRADIENTS)
    return int(found[-1]) if len(found) else -1
