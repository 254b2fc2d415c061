"""Replay a step under changed durations: when would every op have started?

The step's graph has a node per op start and per gate. With unchanged durations the replay gives
the observed starts exactly; with some of them shortened it gives the step as it would have been,
waits and slack included. All variants of all steps of one structure are replayed at once, level
by level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.program import MAX_LAG, UNKNOWN_NS, StepProgram

_NEVER_NS = -(1 << 61)


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes that depend on earlier levels only. Rows and gates are numbers; a row that does not
    exist is ``n_rows``, a gate that does not exist the number of gates.

    ``gates`` open with the latest of ``gate_rows``, segment by segment from ``gate_offsets``.
    ``rows`` follow ``previous`` and the ends of ``waits[i]``, whose gates are ``wait_gates[i]``.
    """

    gates: np.ndarray
    gate_rows: np.ndarray
    gate_offsets: np.ndarray
    rows: np.ndarray
    previous: np.ndarray
    waits: tuple[np.ndarray, ...]
    wait_gates: tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Structure of a step: the rows ``0..n_rows-1`` are op starts, a gate opens with the last of
    its members. ``row_gate`` is ``n_gates`` for rows without. ``first`` are the rows that follow
    no other, ``levels`` the rest."""

    n_rows: int
    n_gates: int
    row_gate: np.ndarray
    first: np.ndarray
    levels: tuple[Level, ...]


def structure_key(step: StepProgram) -> bytes:
    """Equal for steps of equal structure, whose graph may be shared."""
    is_root = step.root_start_ns == UNKNOWN_NS
    columns = (step.bounds, step.instance, step.gate, step.wait_lags, is_root)
    return b"".join([column.astype(np.int32).tobytes() for column in columns])


def build_graph(step: StepProgram, before: np.ndarray | None = None) -> Graph:
    """Graph of a step whose edges were inferred; nodes on a cycle are left out of the levels.

    ``before (n_rows,)`` names the op that each op queues behind (``n_rows`` for none): its instance
    then also waits for the end of that one. Each such op has one more row after those of the step,
    which stands for its turn in the queue and takes no time of its own.
    """
    n = len(step.rank)
    queued = np.flatnonzero(before < n) if before is not None else np.zeros(0, np.int64)
    n_rows = n + len(queued)
    row = np.arange(n)
    previous = np.where(row > step.bounds[step.rank], row - 1, n_rows)
    lagged = row[:, None] - np.arange(1, MAX_LAG + 1)
    is_wait = (step.wait_lags[:, None] >> np.arange(MAX_LAG)) & 1
    waits = np.sort(np.where(is_wait == 1, lagged, n_rows), axis=1)
    waits = waits[:, : max(int(is_wait.sum(axis=1).max(initial=0)), min(len(queued), 1))]
    row_gate, gate_rows, gate_bounds = _gates(step, queued)
    if before is not None and len(queued):
        turns = np.full((len(queued), waits.shape[1]), n_rows)
        turns[:, 0] = before[queued]
        previous = np.append(previous, np.full(len(queued), n_rows))
        waits = np.concatenate((waits, turns))
    return _graph(previous, waits, row_gate, gate_rows, gate_bounds)


def graph_of(previous: np.ndarray, waits: np.ndarray, gate: np.ndarray) -> Graph:
    """Graph of explicit edges: each row starts after the start of ``previous[n_rows]`` and the ends
    of ``waits[n_rows, width]`` (``n_rows`` for none), and can run when all rows of its
    ``gate[n_rows]`` have started. Nodes on a cycle are left out of the levels."""
    order = np.argsort(gate, kind="stable")
    bounds = np.searchsorted(gate[order], np.arange(int(gate.max(initial=-1)) + 2))
    return _graph(previous, np.sort(waits, axis=1), gate, order, bounds)


def _graph(
    previous: np.ndarray,
    waits: np.ndarray,
    row_gate: np.ndarray,
    gate_rows: np.ndarray,
    gate_bounds: np.ndarray,
) -> Graph:
    n, n_gates = len(previous), len(gate_bounds) - 1
    waited_gate = np.append(row_gate, n_gates)
    levels = []
    for rows, gates in _frontiers(previous, waits, row_gate, gate_rows, gate_bounds):
        members, offsets = _members(gate_bounds, gates)
        columns = [column for column in waits[rows].T if (column < n).any()]
        levels.append(
            Level(
                gates=gates,
                gate_rows=gate_rows[members],
                gate_offsets=offsets,
                rows=rows,
                previous=previous[rows],
                waits=tuple(columns),
                wait_gates=tuple(waited_gate[column] for column in columns),
            )
        )
    has_wait = (waits < n).any(axis=1) if waits.shape[1] else np.zeros(n, bool)
    first = np.flatnonzero((previous == n) & ~has_wait)  # depend on nothing: all of the first level
    return Graph(n, n_gates, row_gate, first, tuple(levels[1:]))


def replay(
    graph: Graph, entry_ns: np.ndarray, work_ns: np.ndarray, transfer_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(start, end), each ``(n_rows, n_variants)`` ns.

    ``work_ns`` and ``transfer_ns`` are ``(n_rows, n_variants)``; ``entry_ns`` is ``(n_first, 1)``
    or ``(n_first, n_variants)``, when the program was free before each of ``graph.first``. A
    variant may be any change of any step of this structure.
    """
    n, n_variants = work_ns.shape
    start = np.full((n + 1, n_variants), _NEVER_NS)  # the last stands for "no such row"
    opened = np.full((graph.n_gates + 1, n_variants), _NEVER_NS)
    start[graph.first] = entry_ns + work_ns[graph.first]
    for level in graph.levels:
        if len(level.gates):
            opened[level.gates] = np.maximum.reduceat(
                start.take(level.gate_rows, axis=0), level.gate_offsets, axis=0
            )
        if len(level.rows):
            base = start.take(level.previous, axis=0)
            for rows, gates in zip(level.waits, level.wait_gates, strict=True):
                ready = start.take(rows, axis=0)
                np.maximum(ready, opened.take(gates, axis=0), out=ready)
                ready += transfer_ns.take(rows, axis=0, mode="clip")  # no such row: still never
                np.maximum(base, ready, out=base)
            base += work_ns.take(level.rows, axis=0)
            start[level.rows] = base
    end = opened.take(graph.row_gate, axis=0)
    np.maximum(end, start[:n], out=end)
    end += transfer_ns
    return start[:n], end


def _members(bounds: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the chosen segments, concatenated, and where each begins."""
    counts = bounds[chosen + 1] - bounds[chosen]
    offsets = np.cumsum(counts) - counts
    return np.repeat(bounds[chosen] - offsets, counts) + np.arange(counts.sum()), offsets


def _gates(step: StepProgram, queued: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gate of each row (the number of gates: none), and the gates' rows, segment by segment: the
    members of an instance and their turns in the queue, then the root of each."""
    n_instances = int(step.instance.max(initial=-1)) + 1
    key = np.where(step.gate == 2, step.instance, step.instance + n_instances)
    is_root = step.root_start_ns == UNKNOWN_NS  # also non-rooted ops, whose root gate nobody uses
    row, turn = np.arange(len(step.rank)), len(step.rank) + np.arange(len(queued))
    gate_key = np.concatenate(
        (step.instance, step.instance[queued], step.instance[is_root] + n_instances)
    )
    gate_row = np.concatenate((row, turn, row[is_root]))
    order = np.argsort(gate_key, kind="stable")
    gate_bounds = np.searchsorted(gate_key[order], np.arange(2 * n_instances + 1))
    row_gate = np.where(step.gate == 0, 2 * n_instances, key)
    row_gate = np.append(row_gate, np.full(len(queued), 2 * n_instances))
    return row_gate, gate_row[order], gate_bounds


def _frontiers(
    previous: np.ndarray,
    waits: np.ndarray,
    row_gate: np.ndarray,
    gate_rows: np.ndarray,
    gate_bounds: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, gates that some row uses) by Kahn's algorithm over whole frontiers."""
    n, n_gates = len(previous), len(gate_bounds) - 1
    row = np.arange(n)
    used = np.isin(np.arange(n_gates), row_gate)
    in_gate = np.repeat(np.arange(n_gates), np.diff(gate_bounds))
    after = np.repeat(row, waits.shape[1])
    before = waits.ravel()
    real = before < n
    before, after = before[real], after[real]
    gated = row_gate[before] < n_gates
    keep, follows = used[in_gate], previous < n
    source = np.concatenate(
        (previous[follows], before, row_gate[before[gated]] + n, gate_rows[keep])
    )
    target = np.concatenate((row[follows], after, after[gated], in_gate[keep] + n))
    order = np.argsort(source, kind="stable")
    target = target[order]
    bounds = np.searchsorted(source[order], np.arange(n + n_gates + 1))
    missing = np.bincount(target, minlength=n + n_gates)
    frontier = np.flatnonzero((missing == 0) & np.concatenate((np.ones(n, bool), used)))
    while len(frontier):
        yield frontier[frontier < n], frontier[frontier >= n] - n
        reached, _ = _members(bounds, frontier)
        touched, counts = np.unique(target[reached], return_counts=True)
        missing[touched] -= counts
        frontier = touched[missing[touched] == 0]
