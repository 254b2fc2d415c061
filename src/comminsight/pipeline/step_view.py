"""The ops of one rank in one step, with whom each of them waited for, and its phases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.analysis.alignment import AlignedStep
from comminsight.analysis.columns import Cut, cut_columns, op_source
from comminsight.analysis.matching import Instances, match_ops
from comminsight.errors import InputError
from comminsight.model.ops import Op, OpState, RecordKind
from comminsight.model.step import StepSummary
from comminsight.model.topology import UNKNOWN_RANK
from comminsight.model.trace import RankTrace, RunTrace
from comminsight.model.views import UNFINISHED_NS, VIEW_SCHEMA_VERSION, OpRow, PhaseRow, StepOps

MAX_RANKS_NAMED = 16


def step_ops(
    trace: RunTrace,
    aligned: tuple[AlignedStep, ...],
    *,
    run_id: str,
    global_rank: int,
    step: int,
    step_view: str = "raw",
) -> StepOps:
    """All ops of the rank inside its own window of the step.

    Raises InputError when the run has no such rank or the rank no such step.
    """
    rank = find_rank(trace, global_rank)
    window, others = find_step(aligned, global_rank, step)
    found = match_window(trace, others)
    index = [r.global_rank for r in trace.ranks].index(global_rank)
    identity = rank.session
    return StepOps(
        schema_version=VIEW_SCHEMA_VERSION,
        run_id=run_id,
        global_rank=global_rank,
        host=identity.host,
        step=step,
        template=window.template,
        start_real_ns=window.start_ns + identity.real_minus_mono_ns,
        span_ns=window.span_ns,
        period_ns=window.period_ns,
        is_complete=window.coverage_complete,
        ops=op_rows(trace, rank, window, found, index),
        step_view=step_view,
        phases=phase_rows(window),
    )


def phase_rows(window: StepSummary) -> tuple[PhaseRow, ...]:
    """The phases of a step in the order of their start."""
    return tuple(
        PhaseRow(
            kind=phase.kind.value, start_offset_ns=phase.start_ns - window.start_ns,
            duration_ns=phase.end_ns - phase.start_ns, n_ops=phase.n_ops,
            microbatch=phase.microbatch, n_microbatches=phase.n_microbatches,
        )
        for phase in sorted(window.phases, key=lambda own: own.start_ns)
    )  # fmt: skip


def find_rank(trace: RunTrace, global_rank: int) -> RankTrace:
    """The rank's ops; raises InputError naming the ranks there are."""
    for rank in trace.ranks:
        if rank.global_rank == global_rank:
            return rank
    raise no_rank(global_rank, [rank.global_rank for rank in trace.ranks])


def no_rank(global_rank: int, seen: Sequence[int]) -> InputError:
    """That the run has no such rank, with the first of those that it has."""
    known = ", ".join(map(str, seen[:MAX_RANKS_NAMED])) or "none"
    return InputError(
        f"no rank {global_rank} in this run", next_step=f"ranks seen: {known}",
        code="no_rank", rank=global_rank, known=known,
    )  # fmt: skip


def find_step(
    aligned: tuple[AlignedStep, ...], global_rank: int, step: int
) -> tuple[StepSummary, AlignedStep]:
    """The rank's window of the step, and the step over all ranks."""
    for candidate in aligned:
        if candidate.step == step and global_rank in candidate.members:
            return candidate.members[global_rank], candidate
    own = [a.step for a in aligned if global_rank in a.members]
    known = f"{own[0]} to {own[-1]}" if own else "none"
    raise InputError(
        f"rank {global_rank} has no step {step}", next_step=f"its closed steps: {known}",
        code="no_step", rank=global_rank, step=step, known=known,
    )  # fmt: skip


def window_bounds(rank: RankTrace, window: StepSummary) -> tuple[int, int]:
    """First and one past the last row of the rank's ops that start inside the window: not after
    its last op, whose end may be told late."""
    bounds = (window.start_ns, window.last.start_ns + 1)
    begin, end = np.searchsorted(rank.ops["start_ns"], bounds)
    return int(begin), int(end)


def match_window(trace: RunTrace, step: AlignedStep) -> Instances:
    """Op instances of one step over all its ranks."""
    cuts: list[Cut] = []
    for index, rank in enumerate(trace.ranks):
        window = step.members.get(rank.global_rank)
        if window is not None:
            source = op_source(rank, index, trace.communicators, trace.clocks)
            cuts.append((source, *window_bounds(rank, window)))
    return match_ops(cut_columns(cuts), len(trace.ranks), trace.communicators)


def op_rows(
    trace: RunTrace, rank: RankTrace, window: StepSummary, found: Instances, index: int
) -> tuple[OpRow, ...]:
    """The rows of the view, in the order of their start."""
    own = np.flatnonzero(found.ops.rank == index)
    places = dict(zip(found.ops.row[own].tolist(), own.tolist(), strict=True))
    last = last_places(found)
    return tuple(
        op_row(trace, rank, window, row, found, places.get(row), last)
        for row in range(*window_bounds(rank, window))
    )


def last_places(found: Instances) -> np.ndarray:
    """Per instance, the row of the member that entered it last."""
    latest_ns = np.full(found.n_instances, np.iinfo(np.int64).min)
    np.maximum.at(latest_ns, found.instance, found.start_ns)
    rows = np.flatnonzero(found.start_ns == latest_ns[found.instance])[::-1]
    last = np.zeros(found.n_instances, np.int64)
    last[found.instance[rows]] = rows
    return last


def op_row(
    trace: RunTrace,
    rank: RankTrace,
    window: StepSummary,
    row: int,
    found: Instances,
    place: int | None,
    last: np.ndarray,
) -> OpRow:
    """One op; waits are unknown (0) for an op that could not be matched."""
    op = rank.ops[row]
    comm_id = int(rank.comm_ids_of(op["comm_index"]))
    comm = trace.communicators[comm_id] if comm_id >= 0 else None
    waited_ns, waited_for = 0, UNKNOWN_RANK
    if place is not None:
        waited_ns, waited_for = wait_of(trace, found, place, last)
    is_p2p = op["kind"] == RecordKind.P2P
    peer = int(op["peer_or_root"])
    return OpRow(
        op=Op(int(op["op"])).name.lower(),
        role=comm.role.value if comm else "UNKNOWN",
        comm_label=comm.label if comm else "",
        match_seq=int(op["match_seq"]),
        op_seq=int(op["op_seq"]),
        size_bytes=int(op["size_bytes"]),
        start_offset_ns=int(op["start_ns"]) - window.start_ns,
        duration_ns=int(op["end_ns"] - op["start_ns"]) if op["end_ns"] else UNFINISHED_NS,
        waited_ns=waited_ns,
        waited_for=waited_for,
        peer=comm.members[peer] if is_p2p and comm and 0 <= peer < comm.comm_size else -1,
        state=OpState(int(op["state"])).name.lower(),
    )


def wait_of(trace: RunTrace, found: Instances, place: int, last: np.ndarray) -> tuple[int, int]:
    """(time until the last member entered, its global rank); (0, -1) for the last itself, and where
    nobody knows when a member ran."""
    if not found.is_evidence[found.instance[place]]:
        return 0, UNKNOWN_RANK
    other = int(last[found.instance[place]])
    waited_ns = int(found.start_ns[other] - found.start_ns[place])
    if waited_ns <= 0:
        return 0, UNKNOWN_RANK
    return waited_ns, trace.ranks[int(found.ops.rank[other])].global_rank
