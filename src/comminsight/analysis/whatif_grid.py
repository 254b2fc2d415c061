"""The same program on many ranks and steps as one grid of durations.

A grid is what peers are: ranks that run the same ops in the same order, step by step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.batches import ProgramClass, StepBatch, program_classes, stack_steps
from comminsight.analysis.inference import infer
from comminsight.analysis.program import StepProgram
from comminsight.analysis.whatif_excess import Removed
from comminsight.analysis.whatif_queue import queue_up
from comminsight.analysis.whatif_waits import steady_waits

Parts = tuple[tuple[int, np.ndarray], ...]  # (batch, rows of it)


@dataclass(frozen=True, slots=True)
class LabelledStep:
    """A step with what its rows ``(n_ops,)`` belong to: ``link`` numbers communicators and pairs of
    ranks, ``op_class`` kinds of ops (-1: of none); ``is_queueing`` ops run one after another on
    their link."""

    program: StepProgram
    link: np.ndarray
    op_class: np.ndarray
    is_queueing: np.ndarray


@dataclass(frozen=True, slots=True)
class Grid:
    """Runs of one program on ``ranks (n_ranks,)``; durations are ``(n_steps, n_ranks, n_ops)`` ns,
    ``link (n_ranks, n_ops)`` as in ``LabelledStep``. ``parts`` are (batch, rows of it
    ``(n_ranks, n_ops)``), in the order of the steps."""

    ranks: np.ndarray
    parts: Parts
    work_ns: np.ndarray
    transfer_ns: np.ndarray
    link: np.ndarray

    def put(self, removed: Removed, into: Sequence[np.ndarray]) -> None:
        """Write what goes into ``into[batch] (3, n_steps, n_ops)``."""
        for level, values in enumerate(removed.levels()):
            self.put_one(values, [matrix[level] for matrix in into])

    def put_one(self, values: np.ndarray, into: Sequence[np.ndarray]) -> None:
        """Write values of the grid's shape into ``into[batch] (n_steps, n_ops)``."""
        begin = 0
        for b, rows in self.parts:
            end = begin + len(into[b])
            into[b][:, rows] = values[begin:end]
            begin = end


@dataclass(frozen=True, slots=True)
class Grids:
    """All steps of a run: batches with their durations inferred, the labels of each batch, the op
    that each op queues behind, and the grids. A program that different ranks ran in different steps
    has the grid of the ranks that ran it most often."""

    batches: tuple[StepBatch, ...]
    labels: tuple[LabelledStep, ...]
    before: tuple[np.ndarray, ...]
    grids: tuple[Grid, ...]


def grids_of(steps: Sequence[LabelledStep]) -> Grids:
    """Durations of all steps, inferred from all of them."""
    batches = stack_steps([step.program for step in steps])
    labels = tuple(steps[int(batch.numbers[0])] for batch in batches)
    classes = program_classes(batches)
    for runs in classes:
        infer(batches, runs)
        _settle_waits(batches, *_most_common(batches, runs))
    before = tuple(
        queue_up(batch, own.link, own.is_queueing)
        for batch, own in zip(batches, labels, strict=True)
    )
    return Grids(batches, labels, before, tuple(_grid(batches, labels, runs) for runs in classes))


def _settle_waits(batches: Sequence[StepBatch], ranks: np.ndarray, parts: Parts) -> None:
    def values(name: str) -> np.ndarray:
        return np.concatenate([getattr(batches[b], name)[:, rows] for b, rows in parts])

    entry_ns = np.concatenate([batches[b].entry_ns[:, ranks] for b, _ in parts])
    lags, work_ns = steady_waits(values("start_ns"), values("end_ns"), entry_ns)
    begin = 0
    for b, rows in parts:
        end = begin + len(batches[b].numbers)
        batches[b].layout.wait_lags[rows] = lags
        batches[b].work_ns[:, rows] = work_ns[begin:end]
        begin = end


def _most_common(batches: Sequence[StepBatch], runs: ProgramClass) -> tuple[np.ndarray, Parts]:
    """(ranks, parts) of the ranks that ran the program in most steps."""
    of_part = [tuple(batches[b].layout.rank[rows[:, 0]].tolist()) for b, rows in runs.parts]
    counts: Counter[tuple[int, ...]] = Counter()
    for ranks, (b, _) in zip(of_part, runs.parts, strict=True):
        counts[ranks] += len(batches[b].numbers)
    chosen = counts.most_common(1)[0][0]
    parts = [part for ranks, part in zip(of_part, runs.parts, strict=True) if ranks == chosen]
    return np.array(chosen), tuple(parts)


def _grid(batches: Sequence[StepBatch], labels: Sequence[LabelledStep], runs: ProgramClass) -> Grid:
    ranks, parts = _most_common(batches, runs)

    def values(name: str) -> np.ndarray:
        return np.concatenate([getattr(batches[b], name)[:, rows] for b, rows in parts])

    b, rows = parts[0]
    return Grid(ranks, parts, values("work_ns"), values("transfer_ns"), labels[b].link[rows])
