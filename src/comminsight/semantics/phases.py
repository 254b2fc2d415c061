"""Phases of steps: a bounded trace of the step in progress, and plans put in times.

    ops ─► numbers + times of the open step ─► (step ends) plan of its numbers ─► Phase

A plan follows from the numbers alone and is made once for all steps that are alike. Of a step
that lost records, or has more than ``MAX_TRACED_OPS``, nothing is said: one UNKNOWN phase.

A step whose Close was seen waits for the next Open, however long that takes. Its ops are then set
aside, and of those behind it only the last are held, in which the next step may have begun.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, groupby

import msgspec
import numpy as np

from comminsight.model.step import Phase, PhaseKind, StepSummary
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.phase_iterations import IterationKinds, IterationSnapshot
from comminsight.semantics.phase_models import first_gradients
from comminsight.semantics.phase_plan import Plan, signs_of
from comminsight.semantics.phase_rules import plan_of
from comminsight.semantics.phase_symbols import phase_signs
from comminsight.semantics.symbols import Columns

MAX_TRACED_OPS = 32_768
_UNSEEN_NS = 1 << 62  # stands for the end of an op whose end was not seen
_MAX_PLANS = 16
_MAX_PARTS = 256  # small batches are joined now and then


class PhaseSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The trace between two batches: the position of its first op, numbers and times; in front of
    them those of ``n_aside`` ops set aside, the first of which is at ``aside_first``.
    ``of_first_step`` are the ``first_gradients``."""

    first: int
    numbers: bytes
    times: bytes
    n_unknown: int
    aside_first: int = 0
    n_aside: int = 0
    of_first_step: tuple[int, ...] = ()
    iterations: IterationSnapshot | None = None


class Cut(msgspec.Struct, frozen=True, gc=False):
    """A step that has ended: the position of its first op and its number of ops."""

    first: int
    n_ops: int


@dataclass(frozen=True, slots=True, eq=False)
class _Aside:
    """The ops of a step that has ended and waits for the next Open."""

    first: int
    numbers: np.ndarray
    times: np.ndarray

    @property
    def until(self) -> int:
        """The position behind its last op."""
        return self.first + len(self.numbers)


@dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """A plan as arrays: ``edges`` is ``(2, n_phases, 2)``: places of starts and ends in the
    times of a step."""

    kinds: tuple[PhaseKind, ...]
    n_ops: tuple[int, ...]
    microbatches: tuple[int, ...]
    n_microbatches: tuple[int, ...]
    edges: np.ndarray
    syncs: tuple[tuple[int, int, int], ...]  # (phase, first op, last op)


class PhaseTrace:
    """Numbers and times of the ops from the start of the open step on.

    ``n_tail``: a step that is not known yet begins at one of the last ``n_tail`` ops, or later.
    ``is_iteration`` as in ``plan_of``.
    """

    def __init__(self, comms: CommTable, n_tail: int, *, is_iteration: bool = False) -> None:
        self.n_unknown = 0  # steps of which nothing could be said
        self._comms = comms
        self._is_iteration = is_iteration
        self._n_tail = n_tail
        self._first = self._until = 0
        self._aside: _Aside | None = None
        self._numbers: list[np.ndarray] = []
        self._times: list[np.ndarray] = []
        self._plans: dict[bytes, _Compiled] = {}
        self._of_first_step: tuple[int, ...] = ()
        self._iterations = IterationKinds()

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
        numbers, pairs = self._held()
        times = pairs.reshape(-1)
        places = [self._place(cut) for cut in cuts]
        plans = self._plans_of(steps, cuts, places, numbers)
        done = 0
        for plan, alike in groupby(plans):
            n = len(list(alike))
            if plan is not None:
                ends_ns = np.array([step.end_ns for step in steps[done : done + n]])
                phases = _timed(plan, np.array(places[done : done + n]), ends_ns, times)
            else:
                self.n_unknown += n
                phases = [_unknown(step) for step in steps[done : done + n]]
            if self._is_iteration and plan is None:
                self._iterations.skip()
            elif self._is_iteration:
                phases = [
                    (*found, *self._over_iteration(step))
                    for step, found in zip(steps[done : done + n], phases, strict=True)
                ]
            for step, found in zip(steps[done : done + n], phases, strict=True):
                msgspec.structs.force_setattr(step, "phases", found)  # new, and nobody's yet
            done += n

    def _over_iteration(self, step: StepSummary) -> Iterator[Phase]:
        kind = self._iterations.kind_of(step)
        if kind is not None and step.end_ns > step.start_ns:
            yield Phase(kind, step.start_ns, step.end_ns, step.n_ops)

    def forget(self, before: int, closed: int | None = None) -> None:
        """Drop ops before this position, where the open step begins; ``closed`` is the position
        behind its Close if that was seen.

        A step with ``MAX_TRACED_OPS`` before the tail is either set aside or too long: where it
        does not end before the tail it has more ops than that.
        """
        if self._aside is not None and before >= self._aside.until:
            self._aside = None
        tail = self._until - self._n_tail
        if tail - before > MAX_TRACED_OPS:
            is_held = self._aside is None and before >= self._first
            if is_held and closed is not None and closed - before <= MAX_TRACED_OPS:
                self._set_aside(before, closed)
            before = tail
        self._drop(before)
        if len(self._numbers) > _MAX_PARTS:
            self._join()

    def _set_aside(self, first: int, until: int) -> None:
        self._join()
        held = slice(first - self._first, until - self._first)
        self._aside = _Aside(first, self._numbers[0][held].copy(), self._times[0][held].copy())

    def _drop(self, before: int) -> None:
        while self._numbers and self._first + len(self._numbers[0]) <= before:
            self._first += len(self._numbers.pop(0))
            self._times.pop(0)
        if self._numbers and before > self._first:
            n = before - self._first
            self._numbers[0], self._times[0] = self._numbers[0][n:], self._times[0][n:]
            if len(self._numbers) == 1:  # else it is dropped soon
                self._numbers[0], self._times[0] = self._numbers[0].copy(), self._times[0].copy()
            self._first = before

    def _join(self) -> None:
        if len(self._numbers) != 1:
            self._numbers = [np.concatenate([np.empty(0, np.uint32), *self._numbers])]
            self._times = [np.concatenate([np.empty((0, 2), np.int64), *self._times])]

    def _held(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and times of all ops held, those set aside first."""
        self._join()
        numbers, times, aside = self._numbers[0], self._times[0], self._aside
        if aside is None:
            return numbers, times
        return np.concatenate([aside.numbers, numbers]), np.concatenate([aside.times, times])

    def _place(self, cut: Cut) -> int:
        """Where a step begins in what is held; -1 if it is not held from its first to its last
        op."""
        aside, n_aside = self._aside, 0
        if aside is not None:
            n_aside = len(aside.numbers)
            if aside.first <= cut.first and cut.first + cut.n_ops <= aside.until:
                return cut.first - aside.first
        is_held = self._first <= cut.first and cut.first + cut.n_ops <= self._until
        return cut.first - self._first + n_aside if is_held else -1

    def _plans_of(
        self,
        steps: Sequence[StepSummary],
        cuts: Sequence[Cut],
        places: Sequence[int],
        numbers: np.ndarray,
    ) -> list[_Compiled | None]:
        plans = self._plans
        found: list[_Compiled | None] = []
        for step, cut, first in zip(steps, cuts, places, strict=True):
            is_spoiled = step.n_lost or step.n_late or first < 0
            if is_spoiled or not 0 < cut.n_ops <= MAX_TRACED_OPS:
                found.append(None)
                continue
            own = numbers[first : first + cut.n_ops]
            key = own.tobytes()
            found.append(plans.get(key) or self._new_plan(key))
            if step.step == 0:
                self._of_first_step = first_gradients(own, signs_of(own))
                plans.clear()
        return found

    def _new_plan(self, key: bytes) -> _Compiled:
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        plan = plan_of(
            np.frombuffer(key, np.uint32),
            is_iteration=self._is_iteration,
            of_first_step=self._of_first_step,
        )
        self._plans[key] = made = _compiled(plan)
        return made

    # snapshot

    def snapshot(self) -> PhaseSnapshot:
        """The state between two batches."""
        numbers, times = self._held()
        aside_first, n_aside = 0, 0
        if self._aside is not None:
            aside_first, n_aside = self._aside.first, len(self._aside.numbers)
        return PhaseSnapshot(
            self._first, numbers.tobytes(), times.tobytes(), self.n_unknown, aside_first, n_aside,
            self._of_first_step, self._iterations.snapshot() if self._is_iteration else None,
        )  # fmt: skip

    def restore(self, snapshot: PhaseSnapshot) -> None:
        """Continue from a snapshot."""
        numbers = np.frombuffer(snapshot.numbers, np.uint32)
        times = np.frombuffer(snapshot.times, np.int64).reshape(-1, 2)
        n = snapshot.n_aside
        self._aside = _Aside(snapshot.aside_first, numbers[:n], times[:n]) if n else None
        self._numbers, self._times = [numbers[n:]], [times[n:]]
        self._first, self._until = snapshot.first, snapshot.first + len(numbers) - n
        self.n_unknown = snapshot.n_unknown
        self._of_first_step = snapshot.of_first_step
        if snapshot.iterations is not None:
            self._iterations.restore(snapshot.iterations)


def _compiled(plan: Plan) -> _Compiled:
    return _Compiled(
        tuple(one.kind for one in plan),
        tuple(one.n_ops for one in plan),
        tuple(one.microbatch for one in plan),
        tuple(one.n_microbatches for one in plan),
        np.array([[one.start for one in plan], [one.end for one in plan]], np.intp),
        tuple(
            (n, one.start[0] // 2, one.end[0] // 2) for n, one in enumerate(plan) if one.is_last_end
        ),
    )


def _timed(
    plan: _Compiled, offsets: np.ndarray, ends_ns: np.ndarray, times: np.ndarray
) -> list[tuple[Phase, ...]]:
    """The phases of steps that begin at these ops of the trace and end then; those that last no
    time in the step, or are bounded by an end that was not seen, are left out."""
    edges = times.take(plan.edges[None] + 2 * offsets[:, None, None, None])
    bounds = np.minimum(edges[..., 0], edges[..., 1])
    for place, first, last in plan.syncs:
        ends = times.take(offsets[:, None] * 2 + np.arange(2 * first + 1, 2 * last + 2, 2))
        bounds[:, 1, place] = ends.max(axis=1)
    is_seen = bounds[:, 1] < _UNSEEN_NS
    bounds[:, 1] = np.minimum(bounds[:, 1], ends_ns[:, None])  # some op may end behind the last
    rows = iter(bounds.reshape(-1, len(plan.kinds)).tolist())  # starts, ends, starts, ends, …
    found = [
        tuple(
            map(Phase, plan.kinds, start, end, plan.n_ops, plan.microbatches, plan.n_microbatches)
        )
        for start, end in zip(rows, rows, strict=True)
    ]
    is_said = (bounds[:, 1] > bounds[:, 0]) & is_seen
    if is_said.all():
        return found
    return [tuple(compress(step, said)) for step, said in zip(found, is_said.tolist(), strict=True)]


def _unknown(step: StepSummary) -> tuple[Phase, ...]:
    if step.end_ns <= step.start_ns:
        return ()
    return (
        Phase(kind=PhaseKind.UNKNOWN, start_ns=step.start_ns, end_ns=step.end_ns, n_ops=step.n_ops),
    )
