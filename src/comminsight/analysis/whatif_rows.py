"""Step time without stragglers, from a table of all ops of a step, compute and communication.

Every step is a graph (``whatif_edges`` on a rank, shared starts between ranks) in which an op has
one duration of its own: of a compute op all its time, of communication the time after its last
member had started. Replayed with the durations seen it gives the step seen, but for the gaps that
no edge explains; replayed with the *usual* duration of each class of ops (the mean over all ranks
and steps of compute, the median of communication) it gives the step without stragglers. The ratio
of the two is the slowdown S; with the usual duration for all but one part, or for one part only,
the same replay tells what that part costs.

Formulas: what-if analysis of stragglers (OSDI'25), whose published numbers for its job AR this
reproduces; edges, graph and replay are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.replay import Graph, graph_of, replay
from comminsight.analysis.whatif_edges import step_edges


@dataclass(frozen=True, slots=True)
class OpRows:
    """All ops of some steps; arrays ``(n_rows,)``, sorted by step.

    ``rank`` is any number of what runs ops one by one. ``kind`` is a ``whatif_edges.RowKind``.
    ``op_class`` numbers the classes whose members should take equally long. ``instance`` is equal
    for the members of one communication within a step and -1 for an op that waits for nobody.
    ``is_averaged`` marks classes whose usual duration is the mean (compute); else it is the median.
    """

    step: np.ndarray
    rank: np.ndarray
    kind: np.ndarray
    op_class: np.ndarray
    instance: np.ndarray
    is_averaged: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray


@dataclass(frozen=True, slots=True)
class Explained:
    """How much of the slowdown a part of the ops explains, each 0-1 but for noise.

    ``removed_ratio``: share of the lost time that is gone when this part alone takes its usual
    time. ``alone_ratio``: share that this part loses when all others take theirs.
    """

    removed_ratio: float
    alone_ratio: float


class OpReplay:
    """The steps of a table of ops, ready to be replayed with other durations."""

    def __init__(self, rows: OpRows) -> None:
        self.rows = rows
        self._bounds = np.flatnonzero(
            np.diff(rows.step, prepend=rows.step[:1] - 1, append=-1 << 61)
        )
        parts = [_step_graph(rows, a, b) for a, b in self._spans()]
        self._graphs = [graph for graph, _, _ in parts]
        self.gap_ns = np.concatenate([gap for _, gap, _ in parts])
        own_ns = np.concatenate([own for _, _, own in parts])
        self.duration_ns = np.maximum(own_ns, 0)
        self.usual_ns = _usual_ns(rows, self.duration_ns)

    def _spans(self) -> list[tuple[int, int]]:
        return list(zip(self._bounds[:-1].tolist(), self._bounds[1:].tolist(), strict=True))

    def step_ns(self, durations_ns: Sequence[np.ndarray], *, has_gaps: bool = False) -> np.ndarray:
        """Step times, ``(n_steps, n_variants)`` ns, with each ``(n_rows,)`` of durations; gaps that
        no edge explains are left out unless ``has_gaps``."""
        times = []
        for graph, (a, b) in zip(self._graphs, self._spans(), strict=True):
            transfer = np.stack([duration[a:b] for duration in durations_ns], axis=1)
            work = np.zeros_like(transfer)
            if has_gaps:
                work += self.gap_ns[a:b, None]
            begin_ns = self.rows.start_ns[a:b].min()
            entry = np.full((len(graph.first), 1), begin_ns)
            _, end = replay(graph, entry, work, transfer)
            times.append(end.max(axis=0) - begin_ns)
        return np.stack(times)

    def slowdowns(self, parts: Sequence[np.ndarray] = ()) -> np.ndarray:
        """Mean step over mean usual step, ``(1 + n_parts,)``: of the whole job, then of each part
        ``(n_rows,)`` bool alone, all other ops taking their usual time."""
        variants = [self.usual_ns, self.duration_ns]
        variants += [np.where(part, self.duration_ns, self.usual_ns) for part in parts]
        mean_ns = self.step_ns(variants).mean(axis=0)
        ratios: np.ndarray = mean_ns[1:] / mean_ns[0]
        return ratios

    def explained(self, part: np.ndarray) -> Explained:
        """Share of the slowdown that the ops ``(n_rows,)`` bool explain."""
        without = np.where(part, self.usual_ns, self.duration_ns)
        alone = np.where(part, self.duration_ns, self.usual_ns)
        variants = [self.duration_ns, self.usual_ns, without, alone]
        seen_ns, usual_ns, without_ns, alone_ns = self.step_ns(variants).mean(axis=0).tolist()
        lost_ns = seen_ns - usual_ns
        if lost_ns == 0:
            return Explained(0.0, 0.0)
        return Explained((seen_ns - without_ns) / lost_ns, (alone_ns - usual_ns) / lost_ns)


def _usual_ns(rows: OpRows, duration_ns: np.ndarray) -> np.ndarray:
    usual_ns = np.zeros_like(duration_ns)
    for of_class in np.unique(rows.op_class):
        mine = np.flatnonzero(rows.op_class == of_class)
        middle = np.mean if rows.is_averaged[mine[0]] else np.median
        usual_ns[mine] = round(float(middle(duration_ns[mine])))
    return usual_ns


def _step_graph(rows: OpRows, a: int, b: int) -> tuple[Graph, np.ndarray, np.ndarray]:
    """(graph, gaps, own durations) of the step in rows a to b."""
    start_ns, end_ns = rows.start_ns[a:b], rows.end_ns[a:b]
    n = b - a
    edges = step_edges(rows.rank[a:b], rows.kind[a:b], start_ns)
    alone = rows.instance[a:b] < 0
    _, gate = np.unique(np.where(alone, -1 - np.arange(n), rows.instance[a:b]), return_inverse=True)
    gate_ns = np.full(int(gate.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(gate_ns, gate, start_ns)
    graph = graph_of(np.full(n, n), edges, gate)
    never = start_ns.min()
    free_ns = np.append(end_ns, never)[edges].max(axis=1)
    return graph, start_ns - np.maximum(free_ns, never), end_ns - gate_ns[gate]
