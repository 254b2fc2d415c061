"""Where delay began, as against who was waited for.

The pair waits name the neighbour that made others wait, even if it was itself late because of
someone else. Here every step is taken apart into each rank's own work and the transfers
(``program``), each is measured against the normal of the same place in the program (``normal``),
and the step is replayed without the excess of one rank (``replay``): what a rank inherited is in
the waits of the graph, not in its work, so only the origin is left with a cost.

The cost of rank r in a step is the mean of two what-ifs, which agree unless several ranks delay the
step at once: the gain if r alone had been normal, and the loss if everything but r had been.
With two equally late ranks the first is 0 and the second counts both in full; the mean shares it.

Related work: wait-state root causes by backward replay (Scalasca's delay analysis), remove/add
bounds of "what-if" straggler analysis (OSDI'25); formulation and inference of edges are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.batches import (
    StepBatch,
    program_classes,
    scatter,
    stack_steps,
    step_of_run,
)
from comminsight.analysis.inference import infer
from comminsight.analysis.normal import transfer_excess_ns, work_excess_ns
from comminsight.analysis.program import StepProgram
from comminsight.analysis.replay import Graph, build_graph, replay, structure_key
from comminsight.analysis.waits import union_lengths

MIN_CANDIDATES = 8
REPLAY_CELLS = 1 << 20  # (op, variant) pairs replayed at once: bounds the memory, not the result
REPLAY_RANKS = 8  # candidates replayed at once, for the same reason


@dataclass(frozen=True, slots=True)
class Blame:
    """Arrays ``(n_steps, n_ranks)`` int64 ns, as in ``model.measures.StragglerMeasures``.

    ``own_delay_ns`` and ``transfer_delay_ns`` are sums of excess, whether or not slack hid them;
    ``passed_on_ns`` unites, over the ops a rank entered last, what of the wait it imposed was
    lateness it had inherited; ``step_cost_ns`` is the cost above, 0 for ranks beyond the
    ``n_candidates`` largest delays of the step.
    """

    own_delay_ns: np.ndarray
    transfer_delay_ns: np.ndarray
    passed_on_ns: np.ndarray
    step_cost_ns: np.ndarray


def blame(steps: Sequence[StepProgram], n_ranks: int) -> Blame:
    """Delays and their cost per step and rank. The steps are completed in place."""
    shape = (len(steps), n_ranks)
    result = Blame(*(np.zeros(shape, np.int64) for _ in range(4)))
    batches = stack_steps(steps)
    for runs in program_classes(batches):
        work_ns, transfer_ns = infer(batches, runs)
        beyond = work_excess_ns(work_ns, step_of_run(batches, runs))
        scatter(batches, runs, "work_excess_ns", beyond)
        scatter(batches, runs, "transfer_excess_ns", transfer_excess_ns(transfer_ns))
    graphs: dict[bytes, Graph] = {}
    for batch in batches:
        batch.work_excess_ns[:, batch.layout.has_opaque_work] = 0
        batch.transfer_excess_ns[:, batch.layout.has_opaque_transfer] = 0
        key = structure_key(batch.layout)
        if key not in graphs:
            graphs[key] = build_graph(batch.layout)
        result.own_delay_ns[batch.numbers] = _sums(batch.work_excess_ns, batch.layout.bounds)
        result.transfer_delay_ns[batch.numbers] = _sums(
            batch.transfer_excess_ns, batch.layout.bounds
        )
        _cost(batch, graphs[key], result)
    return result


def n_candidates(n_ranks: int) -> int:
    """How many ranks of a step have their cost replayed: those with the largest delays.

    All of up to ``MIN_CANDIDATES``, later the square root of the world: what is replayed grows as
    ranks x candidates, and one step is rarely delayed by more than a few ranks at once.
    """
    return min(n_ranks, max(MIN_CANDIDATES, math.isqrt(n_ranks)))


def _sums(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Sums over each rank's ops, ``(n_steps, n_ranks)``."""
    total = np.zeros((values.shape[0], values.shape[1] + 1), np.int64)
    np.cumsum(values, axis=1, out=total[:, 1:])
    sums: np.ndarray = total[:, bounds[1:]] - total[:, bounds[:-1]]
    return sums


def _cost(batch: StepBatch, graph: Graph, result: Blame) -> None:
    """Fill ``step_cost_ns`` and ``passed_on_ns`` of the batch's steps, as many at once as fit."""
    n_steps, n_ops = batch.start_ns.shape
    n = n_candidates(result.own_delay_ns.shape[1])
    at_once = max(1, REPLAY_CELLS // (n_ops * (2 + 2 * min(n, REPLAY_RANKS))))
    touched = _Touched(batch.layout)
    for begin in range(0, n_steps, at_once):
        chosen = np.arange(begin, min(begin + at_once, n_steps))
        numbers = batch.numbers[chosen]
        delay_ns = result.own_delay_ns[numbers] + result.transfer_delay_ns[numbers]
        candidates = np.argsort(-delay_ns, axis=1, kind="stable")[:, :n]
        is_delayed = np.take_along_axis(delay_ns, candidates, axis=1) > 0
        candidates = np.where(is_delayed, candidates, -1)
        for first in range(0, n, REPLAY_RANKS):
            ranks = candidates[:, first : first + REPLAY_RANKS]
            start, end = _variants(batch, graph, chosen, ranks, touched)
            step, column = np.nonzero(ranks >= 0)
            result.step_cost_ns[numbers[step], ranks[step, column]] = _costs(end)[step, column]
        late_ns = start[:, :, 0] - start[:, :, 1]
        for i, s in enumerate(chosen):
            result.passed_on_ns[numbers[i]] = _passed_on(batch, s, late_ns[:, i])


def _costs(end_ns: np.ndarray) -> np.ndarray:
    """Cost of each candidate, ``(n_steps, n)``, from the replays that ``_variants`` describes."""
    finish = end_ns.max(axis=0)
    n = finish.shape[1] // 2 - 1
    gain, loss = finish[:, :1] - finish[:, 2 : 2 + n], finish[:, 2 + n :] - finish[:, 1:2]
    costs: np.ndarray = np.maximum(gain + loss, 0) // 2
    return costs


class _Touched:
    """Rows of a layout that one rank can delay: of its own, and of the transfers it is in."""

    def __init__(self, layout: StepProgram) -> None:
        self._layout = layout
        self._rows: dict[int, np.ndarray] = {}

    def own(self, rank: int) -> slice:
        """The rank's rows."""
        return slice(*self._layout.bounds[rank : rank + 2])

    def transfers(self, rank: int) -> np.ndarray:
        """Rows of all members of the rank's instances."""
        if rank not in self._rows:
            instance = self._layout.instance
            takes_part = np.zeros(int(instance.max()) + 1, bool)
            takes_part[instance[self.own(rank)]] = True
            self._rows[rank] = np.flatnonzero(takes_part[instance])
        return self._rows[rank]


def _variants(
    batch: StepBatch, graph: Graph, chosen: np.ndarray, candidates: np.ndarray, touched: _Touched
) -> tuple[np.ndarray, np.ndarray]:
    """Replays ``(n_ops, n_steps, n_variants)`` of the chosen steps: as observed, all normal, then
    without and with only each candidate's excess; ``candidates (n_steps, n)``, -1 for nobody."""
    n = candidates.shape[1]
    shape = (batch.start_ns.shape[1], len(chosen), 2 + 2 * n)
    work, transfer = np.empty(shape, np.int64), np.empty(shape, np.int64)
    columns = (
        (work, batch.work_ns, batch.work_excess_ns, touched.own),
        (transfer, batch.transfer_ns, batch.transfer_excess_ns, touched.transfers),
    )
    for variants, duration_ns, excess_ns, rows_of in columns:
        observed = duration_ns[chosen].T
        normal = observed - excess_ns[chosen].T
        variants[:, :, 0], variants[:, :, 2 : 2 + n] = observed, observed[:, :, None]
        variants[:, :, 1], variants[:, :, 2 + n :] = normal, normal[:, :, None]
        for i, ranks in enumerate(candidates):
            for c, rank in enumerate(ranks[ranks >= 0]):
                rows = rows_of(int(rank))
                variants[rows, i, 2 + c] = normal[rows, i]
                variants[rows, i, 2 + n + c] = observed[rows, i]
    entry = np.repeat(batch.entry_ns[np.ix_(chosen, batch.layout.rank[graph.first])].T, shape[2], 1)
    flat = (shape[0], shape[1] * shape[2])
    start, end = replay(graph, entry, work.reshape(flat), transfer.reshape(flat))
    return start.reshape(shape), end.reshape(shape)


def _passed_on(batch: StepBatch, s: int, late_ns: np.ndarray) -> np.ndarray:
    """Per rank: inherited lateness that made others wait, united over the ops it entered last."""
    layout, start_ns = batch.layout, batch.start_ns[s]
    order = np.lexsort((start_ns, layout.instance))
    instance = layout.instance[order]
    is_last = np.r_[instance[1:] != instance[:-1], True]
    has_other = np.r_[False, instance[1:] == instance[:-1]]
    last = np.flatnonzero(is_last & has_other)
    row, runner_up = order[last], order[last - 1]
    imposed_ns = start_ns[row] - start_ns[runner_up]
    own_ns = np.cumsum(batch.work_excess_ns[s])
    before = np.concatenate(([0], own_ns))[layout.bounds[layout.rank]]
    inherited_ns = np.maximum(late_ns - (own_ns - before), 0)
    handed_ns = np.minimum(imposed_ns, inherited_ns[row])
    passed = np.zeros(layout.n_ranks, np.int64)
    until_ns = start_ns[row]
    rank, union = union_lengths(layout.rank[row], until_ns - handed_ns, until_ns)
    passed[rank] = union
    return passed
