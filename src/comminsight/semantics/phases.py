"""Phases of steps: a bounded trace of the step in progress, and plans put in times.

    ops ─► numbers + times of the open step ─► (step ends) plan of its numbers ─► Phase

A plan follows from the numbers alone and is made once for all steps that are alike. Of a step
that lost records, or has more than ``MAX_TRACED_OPS``, nothing is said: one UNKNOWN phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, groupby

import msgspec
import numpy as np

from comminsight.model.step import Phase, PhaseKind, StepSummary
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.phase_plan import Plan
from comminsight.semantics.phase_rules import plan_of
from comminsight.semantics.phase_symbols import phase_signs
from comminsight.semantics.symbols import Columns

MAX_TRACED_OPS = 32_768
_UNSEEN_NS = 1 << 62  # stands for the end of an op whose end was not seen
_MAX_PLANS = 16
_MAX_PARTS = 256  # small batches are joined now and then
_SERVING = "serving"  # how the templates of serving jobs begin: a step is an iteration


class PhaseSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The trace between two batches: the position of its first op, numbers and times."""

    first: int
    numbers: bytes
    times: bytes
    n_unknown: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A step that has ended: the position of its first op and its number of ops."""

    first: int
    n_ops: int


@dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """A plan as arrays: ``edges`` is ``(2, n_phases, 2)``: places of starts and ends in the
    times of a step."""

    kinds: tuple[PhaseKind, ...]
    n_ops: tuple[int, ...]
    microbatches: tuple[int, ...]
    edges: np.ndarray
    syncs: tuple[tuple[int, int, int], ...]  # (phase, first op, last op)


class PhaseTrace:
    """Numbers and times of the ops from the start of the open step on."""

    def __init__(self, comms: CommTable, template: str) -> None:
        self.n_unknown = 0  # steps of which nothing could be said
        self._comms = comms
        self._is_iteration = template.startswith(_SERVING)
        self._first = self._until = 0
        self._numbers: list[np.ndarray] = []
        self._times: list[np.ndarray] = []
        self._plans: dict[bytes, _Compiled] = {}

    def feed(self, rows: np.ndarray, columns: Columns) -> None:
        """Take committed ops (``OP_DTYPE``) with their columns."""
        numbers = phase_signs(rows, self._comms, columns)
        kept = 0
        if len(self._numbers) == 1 and len(self._numbers[0]) <= len(rows):
            kept = len(self._numbers[0])  # few: one copy now saves a larger one
            numbers = np.concatenate([self._numbers.pop(), numbers])
        times = np.empty((len(numbers), 2), np.int64)
        if kept:
            times[:kept] = self._times.pop()
        start_ns, end_ns = times[kept:, 0], times[kept:, 1]
        start_ns[:], end_ns[:] = rows["start_ns"], rows["end_ns"]
        end_ns[end_ns <= start_ns] = _UNSEEN_NS
        self._numbers.append(numbers)
        self._times.append(times)
        self._until += len(rows)

    def close(self, steps: Sequence[StepSummary], cuts: Sequence[Cut]) -> None:
        """Put phases into steps just made; ``cuts`` are theirs, of ops that were fed."""
        if not steps:
            return
        self._join()
        times = self._times[0].reshape(-1)
        plans = self._plans_of(steps, cuts)
        done = 0
        for plan, alike in groupby(plans):
            n = len(list(alike))
            if plan is not None:
                offsets = np.array([cut.first - self._first for cut in cuts[done : done + n]])
                phases = _timed(plan, offsets, times)
            else:
                self.n_unknown += n
                phases = [_unknown(step) for step in steps[done : done + n]]
            for step, found in zip(steps[done : done + n], phases, strict=True):
                msgspec.structs.force_setattr(step, "phases", found)  # new, and nobody's yet
            done += n

    def forget(self, before: int) -> None:
        """Drop ops before this position, or more than a trace holds."""
        least = max(before, self._until - MAX_TRACED_OPS)
        while self._numbers and self._first + len(self._numbers[0]) <= least:
            self._first += len(self._numbers.pop(0))
            self._times.pop(0)
        if self._numbers and least > self._first and len(self._numbers) == 1:
            self._numbers[0] = self._numbers[0][least - self._first :].copy()
            self._times[0] = self._times[0][least - self._first :].copy()
            self._first = least
        if len(self._numbers) > _MAX_PARTS:
            self._join()

    def _join(self) -> None:
        if len(self._numbers) != 1:
            self._numbers = [np.concatenate([np.empty(0, np.uint32), *self._numbers])]
            self._times = [np.concatenate([np.empty((0, 2), np.int64), *self._times])]

    def _plans_of(
        self, steps: Sequence[StepSummary], cuts: Sequence[Cut]
    ) -> list[_Compiled | None]:
        numbers, plans = self._numbers[0], self._plans
        found: list[_Compiled | None] = []
        for step, cut in zip(steps, cuts, strict=True):
            if step.n_lost or step.n_late or not 0 < cut.n_ops <= MAX_TRACED_OPS:
                found.append(None)
                continue
            first = cut.first - self._first
            key = numbers[first : first + cut.n_ops].tobytes()
            found.append(plans.get(key) or self._new_plan(key))
        return found

    def _new_plan(self, key: bytes) -> _Compiled:
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        plan = plan_of(np.frombuffer(key, np.uint32), is_iteration=self._is_iteration)
        self._plans[key] = made = _compiled(plan)
        return made

    # snapshot

    def snapshot(self) -> PhaseSnapshot:
        """The state between two batches."""
        self._join()
        return PhaseSnapshot(
            self._first, self._numbers[0].tobytes(), self._times[0].tobytes(), self.n_unknown
        )

    def restore(self, snapshot: PhaseSnapshot) -> None:
        """Continue from a snapshot."""
        numbers = np.frombuffer(snapshot.numbers, np.uint32)
        self._first, self._until = snapshot.first, snapshot.first + len(numbers)
        self._numbers = [numbers]
        self._times = [np.frombuffer(snapshot.times, np.int64).reshape(-1, 2)]
        self.n_unknown = snapshot.n_unknown


def _compiled(plan: Plan) -> _Compiled:
    return _Compiled(
        tuple(one.kind for one in plan),
        tuple(one.n_ops for one in plan),
        tuple(one.microbatch for one in plan),
        np.array([[one.start for one in plan], [one.end for one in plan]], np.intp),
        tuple(
            (n, one.start[0] // 2, one.end[0] // 2) for n, one in enumerate(plan) if one.is_last_end
        ),
    )


def _timed(plan: _Compiled, offsets: np.ndarray, times: np.ndarray) -> list[tuple[Phase, ...]]:
    """The phases of steps that begin at these ops of the trace; those that last no time, or are
    bounded by an end that was not seen, are left out."""
    edges = times.take(plan.edges[None] + 2 * offsets[:, None, None, None])
    bounds = np.minimum(edges[..., 0], edges[..., 1])
    for place, first, last in plan.syncs:
        ends = times.take(offsets[:, None] * 2 + np.arange(2 * first + 1, 2 * last + 2, 2))
        bounds[:, 1, place] = ends.max(axis=1)
    rows = iter(bounds.reshape(-1, len(plan.kinds)).tolist())  # starts, ends, starts, ends, …
    found = [
        tuple(map(Phase, plan.kinds, start, end, plan.n_ops, plan.microbatches))
        for start, end in zip(rows, rows, strict=True)
    ]
    is_said = (bounds[:, 1] > bounds[:, 0]) & (bounds[:, 1] < _UNSEEN_NS)
    if is_said.all():
        return found
    return [tuple(compress(step, said)) for step, said in zip(found, is_said.tolist(), strict=True)]


def _unknown(step: StepSummary) -> tuple[Phase, ...]:
    if step.end_ns <= step.start_ns:
        return ()
    return (
        Phase(kind=PhaseKind.UNKNOWN, start_ns=step.start_ns, end_ns=step.end_ns, n_ops=step.n_ops),
    )
