"""Straggler measures of a whole run: waits, index and blame per aligned step and rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from comminsight.analysis.alignment import AlignedStep, align_steps
from comminsight.analysis.batches import share_layout
from comminsight.analysis.blame import Blame, blame
from comminsight.analysis.clock import (
    apart_at_most_ns,
    estimate_clocks,
    stamp_error_ns,
    wall_clocks,
)
from comminsight.analysis.columns import Cut, OpColumns, OpSource, cut_columns, op_source
from comminsight.analysis.hidden import hidden_ratio, untimed_ratio
from comminsight.analysis.matching import Instances, match_ops
from comminsight.analysis.program import UNKNOWN_NS, StepProgram, step_program
from comminsight.analysis.waits import Sweep, index_pct, numpy_sweep, wait_columns, waited_ns
from comminsight.model.measures import StragglerMeasures
from comminsight.model.ops import CommRole
from comminsight.model.step import StepSummary
from comminsight.model.topology import Communicator
from comminsight.model.trace import ClockOffsets, RunTrace
from comminsight.semantics.parallel_layout import parallel_layout

Clock = Literal["raw", "aligned"]

_COORD_ROLES = (CommRole.TP, CommRole.PP, CommRole.CP, CommRole.EP, CommRole.DP)
_LOOK_BACK = 16  # ops before a step among which its entry instant is sought


@dataclass(frozen=True, slots=True)
class RunSources:
    """Every session's ops on one clock, to be cut into steps; build once. ``apart_ns``: so far may
    two ranks seem apart that are at once, UNBOUNDED_NS where nothing joins their clocks."""

    trace: RunTrace
    clock_error_ns: int
    global_ranks: tuple[int, ...]
    sessions: dict[str, OpSource]
    apart_ns: int = 0


def run_sources(trace: RunTrace, clock: Clock = "aligned") -> RunSources:
    """Sources of the run: ``aligned`` by collectives, ``raw`` by the nodes' wall clocks."""
    aligned = trace.clocks if trace.clocks.offset_ns else estimate_clocks(trace.ranks)
    clocks = wall_clocks([r.session for r in trace.ranks]) if clock == "raw" else aligned
    boots = list(dict.fromkeys(rank.session.boot_id for rank in trace.ranks))
    alone = {boot: i for i, boot in enumerate(boots) if boot not in clocks.offset_ns}
    global_ranks = tuple(sorted({rank.global_rank for rank in trace.ranks}))
    index = {global_rank: i for i, global_rank in enumerate(global_ranks)}
    sessions = {}
    for rank in trace.ranks:
        number, domain = index[rank.global_rank], alone.get(rank.session.boot_id, -1)
        source = op_source(rank, number, trace.communicators, clocks, domain)
        sessions[rank.session.session_id] = source
    error_ns = aligned.max_error_ns + stamp_error_ns(trace.ranks)
    apart_ns = apart_at_most_ns(trace.ranks, aligned)
    if clock == "raw":
        error_ns += _disagreement_ns(clocks, aligned)
    return RunSources(trace, error_ns, global_ranks, sessions, apart_ns)


def step_instances(run: RunSources, step: AlignedStep) -> tuple[Instances, np.ndarray]:
    """The step's instances, and ``entry_ns (n_ranks,)``: the last end before each rank's first op
    (``program.UNKNOWN_NS`` where nothing was seen before)."""
    cuts = []
    for rank in sorted(step.members):
        source = run.sessions[step.members[rank].session_id]
        cuts.append((source, *_window(source.trace.ops, step.members[rank])))
    columns = cut_columns(cuts)
    found = match_ops(columns, len(run.global_ranks), run.trace.communicators)
    return found, _entries(run, cuts, columns)


def _entries(run: RunSources, cuts: Sequence[Cut], columns: OpColumns) -> np.ndarray:
    """The latest end among the ops before each cut that is not after the cut's first start."""
    entry_ns = np.full(len(run.global_ranks), UNKNOWN_NS)
    first_start_ns = np.full(len(run.global_ranks), UNKNOWN_NS)
    first = np.flatnonzero(np.diff(columns.rank, prepend=-1))
    first_start_ns[columns.rank[first]] = columns.start_ns[first]
    before = cut_columns([(s, max(begin - _LOOK_BACK, 0), begin) for s, begin, _ in cuts])
    ended = (before.end_ns > 0) & (before.end_ns <= first_start_ns[before.rank])
    np.maximum.at(entry_ns, before.rank[ended], before.end_ns[ended])
    return entry_ns


def straggler_measures(
    trace: RunTrace,
    clock: Clock = "aligned",
    *,
    aligned_steps: Sequence[AlignedStep] | None = None,
    sweep: Sweep = numpy_sweep,
) -> StragglerMeasures:
    """Waits, index and blame of every aligned step; see ``StragglerMeasures`` for the fields.

    A rank whose step is not ``coverage_complete`` enters neither the pairs nor the mean step
    duration of that step; its cells are zero and ``is_complete`` is false. Times of different
    nodes are compared on ``clock``; uncertainty never removes a wait, it is stated. Where a node's
    clock could not be aligned at all, ops across it give no waits: they are counted.
    """
    run = run_sources(trace, clock)
    steps = align_steps(trace) if aligned_steps is None else aligned_steps
    table = _Table(len(steps), len(run.global_ranks))
    programs: list[StepProgram] = []
    layouts: dict[bytes, StepProgram] = {}
    counts = np.zeros(4, np.int64)
    for s, step in enumerate(steps):
        found, entry_ns = step_instances(run, step)
        counts += (found.n_unpaired, found.n_incomplete, found.n_mismatched, found.n_incomparable)
        table.fill_summaries(s, step, run.global_ranks)
        table.fill_waits(s, found, sweep)
        table.fill_bytes(s, found.ops)
        programs.append(step_program(found, entry_ns, trace.communicators, trace.world_size))
        share_layout(programs[-1], layouts)
    origin = blame(programs, len(run.global_ranks))
    return table.measures(run, [step.step for step in steps], origin, counts.tolist())


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
    """Each rank's place in the parallel layout, such as ``tp0 pp1 dp0``; "" where unknown. Where
    the layout is not whole, its places in its own communicators."""
    world_size = max((communicator.comm_size for communicator in communicators), default=0)
    whole = parallel_layout(communicators, world_size)
    if whole.layout.is_complete:
        return tuple(_place(whole.by_rank.get(rank, {})) for rank in global_ranks)
    places: dict[int, dict[CommRole, int]] = {rank: {} for rank in global_ranks}
    for communicator in communicators:
        if communicator.role in _COORD_ROLES:
            for place, rank in enumerate(communicator.members):
                if rank in places:
                    places[rank].setdefault(communicator.role, place)
    return tuple(
        _place({role.value.lower(): place for role, place in own.items()})
        for own in places.values()
    )


def _place(own: Mapping[str, int]) -> str:
    names = [role.value.lower() for role in _COORD_ROLES]
    return " ".join(f"{name}{own[name]}" for name in names if name in own)


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

    __slots__ = (
        "caused_wait_ns", "index_pct", "is_complete", "moved_bytes", "period_ns", "span_ns",
        "waited_ns",
    )  # fmt: skip

    def __init__(self, n_steps: int, n_ranks: int) -> None:
        shape = (n_steps, n_ranks)
        self.is_complete = np.zeros(shape, bool)
        self.index_pct = np.zeros(shape)
        self.span_ns, self.period_ns = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.caused_wait_ns, self.waited_ns = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.moved_bytes = np.zeros(shape, np.int64)

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

    def fill_bytes(self, s: int, ops: OpColumns) -> None:
        n_ranks = self.moved_bytes.shape[1]
        self.moved_bytes[s] = np.bincount(ops.rank, weights=ops.size_bytes, minlength=n_ranks)

    def measures(
        self, run: RunSources, steps: list[int], origin: Blame, counts: list[int]
    ) -> StragglerMeasures:
        hosts = {rank.global_rank: rank.session.host for rank in run.trace.ranks}
        n_unpaired, n_incomplete, n_mismatched, n_incomparable = counts
        return StragglerMeasures(
            steps=np.array(steps, np.int64),
            global_ranks=np.array(run.global_ranks, np.int64),
            hosts=tuple(hosts[rank] for rank in run.global_ranks),
            coords=coordinates(run.global_ranks, run.trace.communicators),
            is_complete=self.is_complete,
            span_ns=self.span_ns,
            period_ns=self.period_ns,
            index_pct=self.index_pct,
            caused_wait_ns=self.caused_wait_ns,
            waited_ns=self.waited_ns,
            own_delay_ns=origin.own_delay_ns * self.is_complete,
            transfer_delay_ns=origin.transfer_delay_ns * self.is_complete,
            passed_on_ns=origin.passed_on_ns * self.is_complete,
            step_cost_ns=origin.step_cost_ns * self.is_complete,
            clock_error_ns=run.clock_error_ns,
            n_unpaired=n_unpaired,
            n_incomplete=n_incomplete,
            n_mismatched=n_mismatched,
            n_incomparable=n_incomparable,
            hidden_ratio=hidden_ratio(run.trace.ranks),
            untimed_ratio=untimed_ratio(run.trace.ranks),
            moved_bytes=self.moved_bytes * self.is_complete,
        )
