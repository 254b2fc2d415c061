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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.normal import transfer_excess_ns, work_excess_ns
from comminsight.analysis.program import (
    UNKNOWN_NS,
    StepProgram,
    infer,
    program_classes,
    scatter,
)
from comminsight.analysis.replay import Graph, build_graph, replay, structure_key
from comminsight.analysis.waits import union_lengths

MAX_CANDIDATES = 8  # ranks whose cost is replayed per step: those with the largest delays


@dataclass(frozen=True, slots=True)
class Blame:
    """Arrays ``(n_steps, n_ranks)`` int64 ns, as in ``model.measures.StragglerMeasures``.

    ``own_delay_ns`` and ``transfer_delay_ns`` are sums of excess, whether or not slack hid them;
    ``passed_on_ns`` unites, over the ops a rank entered last, what of the wait it imposed was
    lateness it had inherited; ``step_cost_ns`` is the cost above, 0 for ranks beyond the
    ``MAX_CANDIDATES`` largest delays of the step.
    """

    own_delay_ns: np.ndarray
    transfer_delay_ns: np.ndarray
    passed_on_ns: np.ndarray
    step_cost_ns: np.ndarray


def blame(steps: Sequence[StepProgram], n_ranks: int) -> Blame:
    """Delays and their cost per step and rank. The steps are completed in place."""
    shape = (len(steps), n_ranks)
    result = Blame(*(np.zeros(shape, np.int64) for _ in range(4)))
    for runs in program_classes(steps):
        work_ns, transfer_ns = infer(steps, runs)
        step_of_run = np.array([s for s, _ in runs.runs])
        scatter(steps, runs, "work_excess_ns", work_excess_ns(work_ns, step_of_run))
        scatter(steps, runs, "transfer_excess_ns", transfer_excess_ns(transfer_ns))
    graphs: dict[bytes, Graph] = {}
    for s, step in enumerate(steps):
        if len(step.rank) == 0:
            continue
        key = structure_key(step)
        if key not in graphs:
            graphs[key] = build_graph(step)
        np.add.at(result.own_delay_ns[s], step.rank, step.work_excess_ns)
        np.add.at(result.transfer_delay_ns[s], step.rank, step.transfer_excess_ns)
        _cost_step(step, graphs[key], s, result)
    return result


def _cost_step(step: StepProgram, graph: Graph, s: int, result: Blame) -> None:
    """Fill ``step_cost_ns`` and ``passed_on_ns`` of one step."""
    delay_ns = result.own_delay_ns[s] + result.transfer_delay_ns[s]
    candidates = np.argsort(-delay_ns, kind="stable")[:MAX_CANDIDATES]
    candidates = candidates[delay_ns[candidates] > 0]
    start, end = _variants(step, graph, candidates)
    finish = end.max(axis=0)
    n = len(candidates)
    observed, normal = finish[0], finish[1]
    gain, loss = observed - finish[2 : 2 + n], finish[2 + n :] - normal
    result.step_cost_ns[s, candidates] = np.maximum(gain + loss, 0) // 2
    result.passed_on_ns[s] = _passed_on(step, start[:, 0] - start[:, 1])


def _variants(
    step: StepProgram, graph: Graph, candidates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Replays: as observed, all normal, then without and with only each candidate's excess."""
    n_instances = int(step.instance.max()) + 1
    takes_part = np.zeros((n_instances, step.n_ranks), bool)
    takes_part[step.instance, step.rank] = True
    is_own = step.rank[:, None] == candidates
    touches = takes_part[:, candidates][step.instance]
    every = np.ones((len(step.rank), 1), bool)
    kept_work = np.hstack((every, ~every, ~is_own, is_own))
    kept_transfer = np.hstack((every, ~every, ~touches, touches))
    work = step.work_ns[:, None] - np.where(kept_work, 0, step.work_excess_ns[:, None])
    transfer = step.transfer_ns[:, None] - np.where(
        kept_transfer, 0, step.transfer_excess_ns[:, None]
    )
    entry = step.entry_ns[step.rank]
    entry = np.where(entry == UNKNOWN_NS, step.start_ns.min(), entry)
    return replay(graph, entry, work, transfer)


def _passed_on(step: StepProgram, late_ns: np.ndarray) -> np.ndarray:
    """Per rank: inherited lateness that made others wait, united over the ops it entered last."""
    order = np.lexsort((step.start_ns, step.instance))
    instance = step.instance[order]
    is_last = np.r_[instance[1:] != instance[:-1], True]
    has_other = np.r_[False, instance[1:] == instance[:-1]]
    last = np.flatnonzero(is_last & has_other)
    row, runner_up = order[last], order[last - 1]
    imposed_ns = step.start_ns[row] - step.start_ns[runner_up]
    own_ns = np.cumsum(step.work_excess_ns)
    before = np.concatenate(([0], own_ns))[step.bounds[step.rank]]
    inherited_ns = np.maximum(late_ns - (own_ns - before), 0)
    handed_ns = np.minimum(imposed_ns, inherited_ns[row])
    passed = np.zeros(step.n_ranks, np.int64)
    until_ns = step.start_ns[row]
    rank, union = union_lengths(step.rank[row], until_ns - handed_ns, until_ns)
    passed[rank] = union
    return passed
