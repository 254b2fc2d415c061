"""Steps of equal layout stacked into matrices, so that what follows runs once per layout.

A training job repeats its step: nearly all steps of a run have the same ops on the same ranks in
the same order and differ in their times only. Stacked, they cost one call of numpy instead of one
per step, and their layout is held once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.program import INFERRED, UNKNOWN_NS, StepProgram

_OPAQUE = ("has_opaque_transfer", "has_opaque_work")
_LAYOUT = ("rank", "instance", "can_run_alone", "bounds", "program", *_OPAQUE)
_DURATIONS = ("work_ns", "transfer_ns", "work_excess_ns", "transfer_excess_ns")


@dataclass(slots=True)
class StepBatch:
    """Steps of one layout; matrices are ``(n_steps, n_ops)``, columns as in ``StepProgram``.

    ``numbers[n_steps]`` are the steps' places in the run. ``layout`` is the first of them, of which
    ``rank``, ``instance``, ``bounds``, ``gate`` and ``wait_lags`` hold for all. ``entry_ns`` is
    ``(n_steps, n_ranks)``; an unknown entry reads as the earliest start of the step.
    """

    numbers: np.ndarray
    layout: StepProgram
    start_ns: np.ndarray
    end_ns: np.ndarray
    root_start_ns: np.ndarray
    last_start_ns: np.ndarray
    entry_ns: np.ndarray
    work_ns: np.ndarray
    transfer_ns: np.ndarray
    work_excess_ns: np.ndarray
    transfer_excess_ns: np.ndarray

    @property
    def has_roots(self) -> bool:
        """False when ``root_start_ns`` is one unknown for all, which takes no memory."""
        return any(self.root_start_ns.strides)


@dataclass(frozen=True, slots=True)
class ProgramClass:
    """All (step, rank) that ran the same program.

    ``parts`` are (batch number, rows): ``rows (n_ranks, n_ops)`` of the batch's ranks in the class.
    Their matrices are ``(n_runs, n_ops)``, runs by part, then by step, then by rank.
    """

    parts: tuple[tuple[int, np.ndarray], ...]

    @property
    def n_ops(self) -> int:
        """Length of the program."""
        return int(self.parts[0][1].shape[1])


def share_layout(step: StepProgram, known: dict[bytes, StepProgram]) -> bytes:
    """Key of the step's layout; a step of a known layout gives up its own copy of it."""
    flags = [np.packbits(getattr(step, name)) for name in _OPAQUE]
    has_root = step.root_start_ns != UNKNOWN_NS
    parts = (step.bounds, step.program, step.instance.astype(np.int32), np.packbits(has_root))
    key = b"".join(part.tobytes() for part in (*parts, *flags))
    first = known.setdefault(key, step)
    if first is not step:
        for name in _LAYOUT:
            setattr(step, name, getattr(first, name))
    return key


def stack_steps(steps: Sequence[StepProgram]) -> tuple[StepBatch, ...]:
    """Batches in order of first appearance. The steps' columns become views into them, so that a
    step shows what is inferred for its batch. Steps without ops are in no batch."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    known: dict[bytes, StepProgram] = {}
    for s, step in enumerate(steps):
        if len(step.rank):
            groups[share_layout(step, known)].append(s)
    return tuple(_stack(steps, numbers) for numbers in groups.values())


def _stack(steps: Sequence[StepProgram], numbers: list[int]) -> StepBatch:
    members = [steps[s] for s in numbers]
    shape = (len(members), len(members[0].rank))
    batch = StepBatch(
        numbers=np.array(numbers),
        layout=members[0],
        start_ns=_stacked(members, "start_ns"),
        end_ns=_stacked(members, "end_ns"),
        root_start_ns=_stacked(members, "root_start_ns"),
        last_start_ns=_stacked(members, "last_start_ns"),
        entry_ns=np.stack([step.entry_ns for step in members]),
        **{name: np.zeros(shape, np.int64) for name in _DURATIONS},
    )
    earliest_ns = batch.start_ns.min(axis=1, keepdims=True)
    batch.entry_ns = np.where(batch.entry_ns == UNKNOWN_NS, earliest_ns, batch.entry_ns)
    shared = {name: np.zeros(shape[1], np.int64) for name in INFERRED if name not in _DURATIONS}
    for i, step in enumerate(members):
        for name in _DURATIONS:
            setattr(step, name, getattr(batch, name)[i])
        for name, column in shared.items():
            setattr(step, name, column)
    return batch


def _stacked(members: list[StepProgram], name: str) -> np.ndarray:
    """The members' columns as a matrix, into which they become views: no column is held twice."""
    columns = [getattr(step, name) for step in members]
    if not any(any(column.strides) for column in columns):  # one value for all
        return np.broadcast_to(columns[0], (len(members), len(columns[0])))
    matrix = np.stack(columns)
    for step, row in zip(members, matrix, strict=True):
        setattr(step, name, row)
    return matrix


def program_classes(batches: Sequence[StepBatch]) -> list[ProgramClass]:
    """(step, rank) grouped by equal program, in order of first appearance."""
    parts: dict[tuple[int, int], list[tuple[int, np.ndarray]]] = defaultdict(list)
    for b, batch in enumerate(batches):
        bounds, program = batch.layout.bounds, batch.layout.program
        n_ops = np.diff(bounds)
        mine: dict[tuple[int, int], list[int]] = defaultdict(list)
        for rank in np.flatnonzero(n_ops).tolist():
            mine[int(program[rank]), int(n_ops[rank])].append(rank)
        for (name, length), ranks in mine.items():
            rows = bounds[ranks][:, None] + np.arange(length)
            parts[name, length].append((b, rows))
    return [ProgramClass(tuple(found)) for found in parts.values()]


def gather(batches: Sequence[StepBatch], runs: ProgramClass, column: str) -> np.ndarray:
    """A matrix of all runs of the class, ``(n_runs, n_ops)``."""
    parts = [getattr(batches[b], column)[:, rows] for b, rows in runs.parts]
    return np.concatenate([part.reshape(-1, runs.n_ops) for part in parts])


def scatter(
    batches: Sequence[StepBatch], runs: ProgramClass, column: str, values: np.ndarray
) -> None:
    """Write ``(n_runs, n_ops)`` values back into a matrix."""
    begin = 0
    for b, rows in runs.parts:
        matrix = getattr(batches[b], column)
        end = begin + len(matrix) * len(rows)
        matrix[:, rows] = values[begin:end].reshape(len(matrix), *rows.shape)
        begin = end


def step_of_run(batches: Sequence[StepBatch], runs: ProgramClass) -> np.ndarray:
    """The run's step of every (step, rank) of the class, ``(n_runs,)``."""
    return np.concatenate([np.repeat(batches[b].numbers, len(rows)) for b, rows in runs.parts])
