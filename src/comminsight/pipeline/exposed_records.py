"""A run's own records as communications inside of its steps, with who was awaited in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.call_gates import DOUBTS, CallGates, MatchedCalls, call_gates
from comminsight.analysis.columns import OpSource, cut_columns
from comminsight.analysis.matching import match_ops
from comminsight.analysis.measures import run_sources, straggler_measures
from comminsight.diagnosis.chain import op_name
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.exposed import OwnerDoubt
from comminsight.model.ops import Op, TimingSource
from comminsight.model.step import PhaseKind, StepSummary
from comminsight.model.trace import RankTrace, RunTrace
from comminsight.pipeline.exposed_instances import matched_records, widest_error_ns

# what a rank does, then what lies over that; kinds of one line are never at once
_PHASES = (
    (PhaseKind.FORWARD, PhaseKind.BACKWARD, PhaseKind.OPTIMIZER),
    (PhaseKind.GRAD_SYNC,),
    (PhaseKind.BUBBLE,),
    (PhaseKind.WARM_UP, PhaseKind.STEADY, PhaseKind.COOL_DOWN),
    (PhaseKind.PREFILL, PhaseKind.DECODE),
)


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    """Finished ops inside of steps (all where a rank has no steps), each on its session's clock.

    ``gates`` has a row for each; ``roles`` is by label of the communicator, ``passed_on`` by rank
    what of its lateness others had made. Left out are ``n_between`` ops between steps and
    ``n_untimed`` of unknown times; of ``n_late_seen`` the end was only seen when somebody waited,
    and is an upper bound. ``clock_error_ns`` is None where no clocks were compared;
    ``has_steps`` where any rank has.
    """

    calls: tuple[Activity, ...]
    gates: CallGates
    roles: dict[str, str]
    passed_on: dict[int, float]
    n_between: int
    n_untimed: int
    n_late_seen: int
    clock_error_ns: int | None
    has_steps: bool


@dataclass(frozen=True, slots=True)
class _Session:
    """One session's rows: those that become calls, their steps, and their rows in the columns."""

    trace: RankTrace
    source: OpSource
    chosen: np.ndarray
    step: np.ndarray
    phase: list[str]
    column: np.ndarray
    n_known: int
    n_between: int
    n_untimed: int


def recorded_calls(trace: RunTrace) -> RecordedCalls:
    """The communications of a run with their gates."""
    run = run_sources(trace)
    sources = [run.sessions[rank.session.session_id] for rank in trace.ranks]
    columns = cut_columns([(one, 0, len(one.trace.ops)) for one in sources])
    sessions, first = [], 0
    for source in sources:
        is_known = source.trace.comm_ids_of(source.trace.ops["comm_index"]) >= 0
        column = np.where(is_known, first + np.cumsum(is_known) - 1, -1)
        steps = trace.steps.get(source.trace.session.session_id, ())
        sessions.append(_session(source, steps, column))
        first += sessions[-1].n_known
    found = match_ops(columns, len(run.global_ranks), trace.communicators)
    matched = matched_records(run, found, [one.n_known for one in sessions])
    ends_ns = [_ends_ns(matched, one) for one in sessions]
    labels = [one.label for one in trace.communicators]
    return RecordedCalls(
        calls=tuple(
            call
            for one, own_ns in zip(sessions, ends_ns, strict=True)
            for call in _activities(one, own_ns, labels)
        ),
        gates=_gates(
            matched, sessions, _joined([one.column for one in sessions]), _joined(ends_ns)
        ),
        roles={one.label: one.role.value for one in trace.communicators},
        passed_on=_passed_on(trace),
        n_between=sum(one.n_between for one in sessions),
        n_untimed=sum(one.n_untimed for one in sessions),
        n_late_seen=sum(
            _n_late_seen(one, own_ns) for one, own_ns in zip(sessions, ends_ns, strict=True)
        ),
        clock_error_ns=widest_error_ns(run) if len(trace.ranks) > 1 else None,
        has_steps=any(trace.steps.values()),
    )


def _n_late_seen(one: _Session, ends_ns: np.ndarray) -> int:
    """Ops whose end is known by nothing but the return of a wait."""
    ops = one.trace.ops[one.chosen]
    is_bound = ops["timing_source"] == TimingSource.HOST_WAIT
    return int((is_bound & (ends_ns == ops["end_ns"])).sum())


def _passed_on(trace: RunTrace) -> dict[int, float]:
    """What of each rank's lateness it had from others, 0-1, over its complete steps (see
    ``analysis.blame``); ranks that were never late are not in it."""
    found = straggler_measures(trace)
    own_ns, passed_ns = found.own_delay_ns.sum(axis=0), found.passed_on_ns.sum(axis=0)
    return {
        rank: passed / (own + passed)
        for rank, own, passed in zip(
            found.global_ranks.tolist(), own_ns.tolist(), passed_ns.tolist(), strict=True
        )
        if own + passed
    }


def _session(source: OpSource, steps: Sequence[StepSummary], column: np.ndarray) -> _Session:
    ops = source.trace.ops
    start_ns = ops["start_ns"]
    is_timed = (start_ns > 0) & (ops["end_ns"] > start_ns)
    step = np.full(len(ops), -1)
    is_inside = np.ones(len(ops), bool)
    if steps:
        spans = [(one.start_ns, one.end_ns) for one in steps]
        at = _place(spans, start_ns)
        is_inside = at >= 0
        step = np.where(is_inside, np.array([one.step for one in steps])[at], -1)
    chosen = np.flatnonzero(is_timed & is_inside)
    return _Session(
        trace=source.trace,
        source=source,
        chosen=chosen,
        step=step[chosen],
        phase=_phases(steps, start_ns[chosen]),
        column=column[chosen],
        n_known=int((column >= 0).sum()),
        n_between=int((is_timed & ~is_inside).sum()),
        n_untimed=int((~is_timed).sum()),
    )


def _phases(steps: Sequence[StepSummary], start_ns: np.ndarray) -> list[str]:
    """The phase that each instant lies in, the most telling one; "" where none is known."""
    found = [""] * len(start_ns)
    for kinds in reversed(_PHASES):
        own = [phase for one in steps for phase in one.phases if phase.kind in kinds]
        own.sort(key=lambda one: one.start_ns)
        at = _place([(one.start_ns, one.end_ns) for one in own], start_ns)
        for row in np.flatnonzero(at >= 0).tolist():
            found[row] = own[at[row]].kind.value
    return found


def _place(spans: Sequence[tuple[int, int]], at_ns: np.ndarray) -> np.ndarray:
    """Which of the disjoint, ascending spans holds each instant; -1 for none."""
    if not spans:
        return np.full(len(at_ns), -1)
    edges = np.array(spans, np.int64)
    found = np.searchsorted(edges[:, 0], at_ns, "right") - 1
    return np.where((found >= 0) & (at_ns < edges[np.maximum(found, 0), 1]), found, -1)


def _activities(one: _Session, ends_ns: np.ndarray, labels: Sequence[str]) -> list[Activity]:
    ops = one.trace.ops[one.chosen]
    comm_ids = one.trace.comm_ids_of(ops["comm_index"]).tolist()
    columns = [ops["start_ns"].tolist(), ends_ns.tolist()]
    columns += [ops[name].tolist() for name in ("op", "size_bytes")]
    return [
        Activity(
            global_rank=one.trace.global_rank,
            kind=ActivityKind.COMMUNICATION,
            name=op_name(op),
            start_ns=start_ns,
            end_ns=end_ns,
            op=Op(op),
            size_bytes=size_bytes,
            comm_label=labels[comm_id] if comm_id >= 0 else "",
            step=step,
            phase=phase,
        )
        for start_ns, end_ns, op, size_bytes, comm_id, step, phase in zip(
            *columns, comm_ids, one.step.tolist(), one.phase, strict=True
        )
    ]


def _gates(
    matched: MatchedCalls, sessions: Sequence[_Session], column: np.ndarray, end_ns: np.ndarray
) -> CallGates:
    """The gates of the chosen ops, which end at ``end_ns``, on the clocks of their sessions."""
    gates = call_gates(matched)
    offset_ns = _joined([np.full(len(one.chosen), one.source.offset_ns) for one in sessions])
    call = np.full(len(matched.op) + 1, -1)
    is_known = column >= 0
    call[column[is_known]] = np.flatnonzero(is_known)

    def told(values: np.ndarray, otherwise: np.ndarray | int) -> np.ndarray:
        return np.where(is_known, np.append(values, -1)[column], otherwise)

    return CallGates(
        gate_ns=told(gates.gate_ns, end_ns + offset_ns) - offset_ns,
        alone_ns=told(gates.alone_ns, end_ns + offset_ns) - offset_ns,
        late_rank=told(gates.late_rank, -1),
        late_row=call[told(gates.late_row, -1)],
        doubt=told(gates.doubt, DOUBTS.index(OwnerDoubt.UNMATCHED)),
    )


def _ends_ns(matched: MatchedCalls, one: _Session) -> np.ndarray:
    """When the chosen ops ended, on the session's clock."""
    seen_ns = one.trace.ops["end_ns"][one.chosen]
    settled_ns = np.append(matched.end_ns, 0)[one.column] - one.source.offset_ns
    is_earlier = (one.column >= 0) & (settled_ns < seen_ns)
    ends_ns: np.ndarray = np.where(is_earlier, settled_ns, seen_ns)
    return ends_ns


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *arrays])
