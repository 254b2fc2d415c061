"""Replay a step under changed durations: when would every op have started?

The step's graph has a node per op start and per gate. With unchanged durations the replay gives
the observed starts exactly; with some of them shortened it gives the step as it would have been,
waits and slack included. All variants of a step are replayed at once, level by level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from comminsight.analysis.program import MAX_LAG, UNKNOWN_NS, StepProgram

_NEVER_NS = -(1 << 61)


@dataclass(frozen=True, slots=True)
class Graph:
    """Structure of a step. Rows are op starts ``0..n-1``; gate ``g`` opens with the last of its
    members ``gate_rows[gate_bounds[g] : gate_bounds[g + 1]]``; ``row_gate`` is -1 for none.
    ``waits[row]`` are the rows whose ends the row waits for, padded with -1. ``levels`` hold
    (rows, gates) that depend only on earlier levels."""

    previous: np.ndarray
    waits: np.ndarray
    row_gate: np.ndarray
    gate_rows: np.ndarray
    gate_bounds: np.ndarray
    levels: tuple[tuple[np.ndarray, np.ndarray], ...]


def structure_key(step: StepProgram) -> bytes:
    """Equal for steps of equal structure, whose graph may be shared."""
    parts = (step.bounds, step.instance, step.gate, step.wait_lags)
    return b"".join(part.astype(np.int32).tobytes() for part in parts)


def build_graph(step: StepProgram) -> Graph:
    """Graph of a step whose edges were inferred; nodes on a cycle are left out of the levels."""
    n = len(step.rank)
    row = np.arange(n)
    previous = np.where(row > step.bounds[step.rank], row - 1, -1)
    lagged = row[:, None] - np.arange(1, MAX_LAG + 1)
    is_wait = (step.wait_lags[:, None] >> np.arange(MAX_LAG)) & 1
    waits = np.where(is_wait == 1, lagged, -1)
    waits = -np.sort(-waits, axis=1)[:, : max(1, int(is_wait.sum(axis=1).max(initial=0)))]
    row_gate, gate_rows, gate_bounds = _gates(step)
    levels = _levels(previous, waits, row_gate, gate_rows, gate_bounds)
    return Graph(previous, waits, row_gate, gate_rows, gate_bounds, levels)


def replay(
    graph: Graph, entry_ns: np.ndarray, work_ns: np.ndarray, transfer_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(start, end), each ``(n_rows, n_variants)`` ns.

    ``entry_ns (n_rows,)`` matters for rows without a predecessor; ``work_ns`` and ``transfer_ns``
    are ``(n_rows, n_variants)``. One extra row at the end of the tables stands for "nothing".
    """
    n, n_variants = work_ns.shape
    start = np.full((n + 1, n_variants), _NEVER_NS)
    opened = np.full((len(graph.gate_bounds), n_variants), _NEVER_NS)
    end = np.full((n + 1, n_variants), _NEVER_NS)
    is_first = graph.previous < 0
    for rows, gates in graph.levels:
        if len(gates):
            opened[gates] = _segment_max(graph, gates, start)
        if len(rows):
            base = start[graph.previous[rows]]
            for waited in graph.waits[rows].T:
                ready = np.maximum(start[waited], opened[graph.row_gate[waited]])
                base = np.maximum(
                    base, np.where(waited[:, None] < 0, _NEVER_NS, ready + transfer_ns[waited])
                )
            base = np.where(is_first[rows, None], entry_ns[rows, None], base)
            start[rows] = base + work_ns[rows]
    end = np.maximum(start[:n], opened[graph.row_gate]) + transfer_ns
    return start[:n], end


def _segment_max(graph: Graph, gates: np.ndarray, start: np.ndarray) -> np.ndarray:
    members, offsets = _members(graph.gate_bounds, gates)
    latest: np.ndarray = np.maximum.reduceat(start[graph.gate_rows[members]], offsets, axis=0)
    return latest


def _members(bounds: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the chosen segments, concatenated, and where each begins."""
    counts = bounds[chosen + 1] - bounds[chosen]
    offsets = np.cumsum(counts) - counts
    return np.repeat(bounds[chosen] - offsets, counts) + np.arange(counts.sum()), offsets


def _gates(step: StepProgram) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gate of each row (-1: none), and the gates' rows: an instance's members, or its root."""
    n_instances = int(step.instance.max(initial=-1)) + 1
    key = np.where(step.gate == 2, step.instance, step.instance + n_instances)
    is_root = step.root_start_ns == UNKNOWN_NS  # also non-rooted ops, whose root gate nobody uses
    row = np.arange(len(step.rank))
    gate_key = np.concatenate((step.instance, step.instance[is_root] + n_instances))
    gate_row = np.concatenate((row, row[is_root]))
    order = np.argsort(gate_key, kind="stable")
    gate_bounds = np.searchsorted(gate_key[order], np.arange(2 * n_instances + 1))
    return np.where(step.gate == 0, -1, key), gate_row[order], gate_bounds


def _levels(
    previous: np.ndarray,
    waits: np.ndarray,
    row_gate: np.ndarray,
    gate_rows: np.ndarray,
    gate_bounds: np.ndarray,
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Kahn's algorithm over whole frontiers. Nodes: rows, then gates that some row uses."""
    n, n_gates = len(previous), len(gate_bounds) - 1
    row = np.arange(n)
    used = np.isin(np.arange(n_gates), row_gate)
    in_gate = np.repeat(np.arange(n_gates), np.diff(gate_bounds))
    after = np.repeat(row, waits.shape[1])
    before = waits.ravel()
    real = before >= 0
    before, after = before[real], after[real]
    gated = row_gate[before] >= 0
    keep = used[in_gate]
    source = np.concatenate(
        (previous[previous >= 0], before, row_gate[before[gated]] + n, gate_rows[keep])
    )
    target = np.concatenate((row[previous >= 0], after, after[gated], in_gate[keep] + n))
    order = np.argsort(source, kind="stable")
    target = target[order]
    bounds = np.searchsorted(source[order], np.arange(n + n_gates + 1))
    missing = np.bincount(target, minlength=n + n_gates)
    frontier = np.flatnonzero((missing == 0) & np.concatenate((np.ones(n, bool), used)))
    levels = []
    while len(frontier):
        levels.append((frontier[frontier < n], frontier[frontier >= n] - n))
        reached, _ = _members(bounds, frontier)
        touched, counts = np.unique(target[reached], return_counts=True)
        missing[touched] -= counts
        frontier = touched[missing[touched] == 0]
    return tuple(levels)
