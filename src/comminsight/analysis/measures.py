"""Straggler measures of a whole run: waits, index and blame per aligned step and rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from comminsight.analysis.alignment import AlignedStep, align_steps
from comminsight.analysis.blame import blame
from comminsight.analysis.clock import estimate_clocks, wall_clocks
from comminsight.analysis.matching import (
    Instances,
    OpColumns,
    join_columns,
    match_ops,
    rank_columns,
)
from comminsight.analysis.program import UNKNOWN_NS, StepProgram, step_program
from comminsight.analysis.waits import Sweep, index_pct, numpy_sweep, wait_columns, waited_ns
from comminsight.model.measures import StragglerMeasures
from comminsight.model.ops import CommRole
from comminsight.model.step import StepSummary
from comminsight.model.topology import Communicator
from comminsight.model.trace import ClockOffsets, RankTrace, RunTrace

Clock = Literal["raw", "aligned"]

_COORD_ROLES = (CommRole.TP, CommRole.PP, CommRole.CP, CommRole.EP, CommRole.DP)
_LOOK_BACK = 16  # ops before a step among which its entry instant is sought


@dataclass(frozen=True, slots=True)
class RunColumns:
    """Hot columns of every session on one clock; build once, cut into steps."""

    trace: RunTrace
    clocks: ClockOffsets
    clock_error_ns: int
    global_ranks: tuple[int, ...]
    sessions: dict[str, tuple[RankTrace, OpColumns]]


def run_columns(trace: RunTrace, clock: Clock = "aligned") -> RunColumns:
    """Columns of the run: ``aligned`` by collectives, ``raw`` by the nodes' wall clocks."""
    aligned = trace.clocks if trace.clocks.offset_ns else estimate_clocks(trace.ranks)
    clocks = wall_clocks([r.session for r in trace.ranks]) if clock == "raw" else aligned
    boots = list(dict.fromkeys(rank.session.boot_id for rank in trace.ranks))
    alone = {boot: i for i, boot in enumerate(boots) if boot not in clocks.offset_ns}
    global_ranks = tuple(sorted({rank.global_rank for rank in trace.ranks}))
    index = {global_rank: i for i, global_rank in enumerate(global_ranks)}
    sessions = {}
    for rank in trace.ranks:
        columns = rank_columns(
            rank,
            index[rank.global_rank],
            trace.communicators,
            clocks,
            alone.get(rank.session.boot_id, -1),
        )
        sessions[rank.session.session_id] = (rank, columns)
    error_ns = aligned.max_error_ns
    if clock == "raw":
        error_ns += _disagreement_ns(clocks, aligned)
    return RunColumns(trace, clocks, error_ns, global_ranks, sessions)


def step_instances(run: RunColumns, step: AlignedStep) -> tuple[Instances, np.ndarray]:
    """The step's instances, and ``entry_ns (n_ranks,)``: the last end before each rank's first op
    (``program.UNKNOWN_NS`` where nothing was seen before)."""
    parts = []
    entry_ns = np.full(len(run.global_ranks), UNKNOWN_NS)
    for summary in step.members.values():
        rank, columns = run.sessions[summary.session_id]
        begin, end = (np.searchsorted(columns.row, row) for row in _window(rank.ops, summary))
        if begin == end:
            continue
        parts.append(columns.take(slice(begin, end)))
        ends = columns.end_ns[max(begin - _LOOK_BACK, 0) : begin]
        before = ends[(ends > 0) & (ends <= columns.start_ns[begin])]
        if len(before):
            entry_ns[columns.rank[begin]] = before.max()
    found = match_ops(join_columns(parts), len(run.global_ranks), run.trace.communicators)
    return found, entry_ns


def straggler_measures(
    trace: RunTrace, clock: Clock = "aligned", *, sweep: Sweep = numpy_sweep
) -> StragglerMeasures:
    """Waits, index and blame of every aligned step; see ``StragglerMeasures`` for the fields.

    A rank whose step is not ``coverage_complete`` enters neither the pairs nor the mean step
    duration of that step; its cells are zero and ``is_complete`` is false. Times of different
    nodes are compared on ``clock``; uncertainty never removes a wait, it is stated.
    """
    run = run_columns(trace, clock)
    steps = align_steps(trace)
    table = _Table(len(steps), len(run.global_ranks))
    programs: list[StepProgram] = []
    counts = np.zeros(3, np.int64)
    for s, step in enumerate(steps):
        found, entry_ns = step_instances(run, step)
        counts += (found.n_unpaired, found.n_incomplete, found.n_mismatched)
        table.fill_summaries(s, step, run.global_ranks)
        table.fill_waits(s, found, sweep)
        programs.append(step_program(found, entry_ns, trace.communicators, trace.world_size))
    origin = blame(programs, len(run.global_ranks))
    hosts = {rank.global_rank: rank.session.host for rank in trace.ranks}
    usable = table.is_complete
    return StragglerMeasures(
        steps=np.array([step.step for step in steps], np.int64),
        global_ranks=np.array(run.global_ranks, np.int64),
        hosts=tuple(hosts[rank] for rank in run.global_ranks),
        coords=coordinates(run.global_ranks, trace.communicators),
        is_complete=usable,
        span_ns=table.span_ns,
        period_ns=table.period_ns,
        index_pct=table.index_pct,
        caused_wait_ns=table.caused_wait_ns,
        waited_ns=table.waited_ns,
        own_delay_ns=origin.own_delay_ns * usable,
        transfer_delay_ns=origin.transfer_delay_ns * usable,
        passed_on_ns=origin.passed_on_ns * usable,
        step_cost_ns=origin.step_cost_ns * usable,
        clock_error_ns=run.clock_error_ns,
        n_unpaired=int(counts[0]),
        n_incomplete=int(counts[1]),
        n_mismatched=int(counts[2]),
    )


def mean_over_complete(values: np.ndarray, is_complete: np.ndarray) -> np.ndarray:
    """Per rank, the mean over its complete steps, float64 ``(n_ranks,)``; 0 without one.

    Of ``index_pct`` this is the article's composite index of a rank over several steps.
    """
    n_steps = np.maximum(is_complete.sum(axis=0), 1)
    mean: np.ndarray = np.where(is_complete, values, 0).sum(axis=0) / n_steps
    return mean


def excluded_steps(measures: StragglerMeasures) -> dict[int, tuple[int, ...]]:
    """Steps left out of each rank's mean, for ranks that have any."""
    excluded = {}
    for column, rank in enumerate(measures.global_ranks):
        steps = measures.steps[~measures.is_complete[:, column]]
        if len(steps):
            excluded[int(rank)] = tuple(int(step) for step in steps)
    return excluded


def coordinates(
    global_ranks: Sequence[int], communicators: Sequence[Communicator]
) -> tuple[str, ...]:
    """Each rank's place in the parallel layout, such as ``tp0 pp1 dp0``; "" where unknown."""
    places: dict[int, dict[CommRole, int]] = {rank: {} for rank in global_ranks}
    for communicator in communicators:
        if communicator.role in _COORD_ROLES:
            for place, rank in enumerate(communicator.members):
                if rank in places:
                    places[rank].setdefault(communicator.role, place)
    return tuple(
        " ".join(f"{r.value.lower()}{own[r]}" for r in _COORD_ROLES if r in own)
        for own in places.values()
    )


def _window(ops: np.ndarray, summary: StepSummary) -> tuple[int, int]:
    """Rows of a step in a rank's ops, which are sorted by (start_ns, seq); seq 0 is unknown."""
    starts, seqs = ops["start_ns"], ops["seq"]

    def row(start_ns: int, seq: int, side: Literal["left", "right"]) -> int:
        low = int(np.searchsorted(starts, start_ns, "left"))
        high = int(np.searchsorted(starts, start_ns, "right"))
        if seq == 0:
            return low if side == "left" else high
        return low + int(np.searchsorted(seqs[low:high], seq, side))

    return (
        row(summary.first.start_ns, summary.first.seq, "left"),
        row(summary.last.start_ns, summary.last.seq, "right"),
    )


def _disagreement_ns(raw: ClockOffsets, aligned: ClockOffsets) -> int:
    """Largest difference between the two views of a node's offset."""
    common = raw.offset_ns.keys() & aligned.offset_ns.keys()
    gaps = [raw.offset_ns[boot] - aligned.offset_ns[boot] for boot in common]
    return max(gaps, default=0) - min(gaps, default=0)


class _Table:
    """The ``(n_steps, n_ranks)`` arrays while they are being filled."""

    __slots__ = ("caused_wait_ns", "index_pct", "is_complete", "period_ns", "span_ns", "waited_ns")

    def __init__(self, n_steps: int, n_ranks: int) -> None:
        shape = (n_steps, n_ranks)
        self.is_complete = np.zeros(shape, bool)
        self.index_pct = np.zeros(shape)
        self.span_ns, self.period_ns = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.caused_wait_ns, self.waited_ns = np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def fill_summaries(self, s: int, step: AlignedStep, global_ranks: Sequence[int]) -> None:
        for column, rank in enumerate(global_ranks):
            summary = step.members.get(rank)
            if summary is not None and summary.coverage_complete:
                self.is_complete[s, column] = True
                self.span_ns[s, column] = summary.span_ns
                self.period_ns[s, column] = summary.period_ns

    def fill_waits(self, s: int, found: Instances, sweep: Sweep) -> None:
        valid = self.is_complete[s]
        if not valid.any():
            return
        rank, instance, start_ns = wait_columns(found)
        rows = valid[rank]
        rank, instance, start_ns = rank[rows], instance[rows], start_ns[rows]
        sums = sweep(rank, instance, start_ns, found.n_ranks)
        self.index_pct[s] = index_pct(sums, float(self.span_ns[s, valid].mean()))
        self.caused_wait_ns[s] = sums.mean_caused_ns.astype(np.int64)
        self.waited_ns[s] = waited_ns(rank, instance, start_ns, found.n_ranks)
