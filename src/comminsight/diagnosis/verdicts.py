"""All rules over one run: the verdicts, the gravest first.

A hung or broken job is judged before its speed: its last steps say nothing about stragglers, but
those before the hang may, and both verdicts are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from comminsight.analysis.alignment import AlignedStep
from comminsight.diagnosis import codes
from comminsight.diagnosis.finished_mismatch import judge_finished
from comminsight.diagnosis.hang import NOTABLE_NS, judge_hang
from comminsight.diagnosis.killed import judge_killed
from comminsight.diagnosis.miscounts import without_numbers
from comminsight.diagnosis.mismatch import RULE as HANG
from comminsight.diagnosis.speed import judge_speed
from comminsight.model.hang import HangEvent, InFlightOp, Liveness
from comminsight.model.measures import StragglerMeasures
from comminsight.model.ops import OpState, SlotFlag
from comminsight.model.trace import RankTrace, RunTrace
from comminsight.model.verdict import UNREMARKABLE, Cause, Coverage, Verdict

WITHHELD = {codes.MISSING_COUNTS, codes.MISSING_BOX}


def judge_run(
    trace: RunTrace,
    measures: StragglerMeasures,
    coverage: Coverage,
    events: Sequence[HangEvent],
    at_end: HangEvent,
    steps: Sequence[AlignedStep] = (),
) -> tuple[Verdict, ...]:
    """Verdicts of the hang, life-cycle and straggler rules, and on calls that went through though
    they were unlike; ``at_end`` is the last view of all."""
    lasting = [event for event in events if is_unresolved(event, trace)]
    ended = (*judge_end(lasting, at_end, trace), *judge_finished(trace, coverage, steps))
    speed = judge_speed(measures, trace.communicators, coverage)
    speed = without_numbers(speed, trace)
    # that speed tells nothing is no news beside what the run hangs in or ended by
    return ended if ended and speed.cause in UNREMARKABLE else (*ended, speed)


def judge_end(
    lasting: Sequence[HangEvent], at_end: HangEvent, trace: RunTrace
) -> tuple[Verdict, ...]:
    """What the run hangs in or ended by; empty when neither is remarkable.

    Evidence that a launcher gathered comes with stacks. Without one (its process was killed, or
    the site has its own) the last view tells: of ops that the recorders found overdue, and of a
    rank that was gone while others waited on. Where all ended in order, a hang is told only of
    NCCL's ops and with the rank that it began at: other ops may have no end because nobody waited
    for them. A hang that nobody could be named for is told where there is evidence of whom it waits
    for, and while it lasts also one that is not yet overdue.
    """
    if lasting:
        return (judge_hang(lasting[-1], trace.communicators),)
    verdicts = [rule(at_end, trace.communicators) for rule in _rules_of_end(at_end)]
    if all(state.liveness is Liveness.CLOSED for state in at_end.ranks):
        is_kernel = any(op.is_overdue and op.slot_flags & SlotFlag.NCCL for op in at_end.waiting)
        verdicts = [v for v in verdicts if v.rule != HANG or (is_kernel and v.culprits)]
    found = next((verdict for verdict in verdicts if verdict.cause not in UNREMARKABLE), None)
    is_open = bool(verdicts) and _is_open(verdicts[0])
    return tuple(v for v in (found, verdicts[0] if is_open else None) if v is not None)


def _is_open(verdict: Verdict) -> bool:
    """True for a hang that nobody is named for, of which something is known all the same."""
    why = {message.code for message in verdict.missing}
    return verdict.cause is Cause.NO_VERDICT and bool(verdict.evidence or WITHHELD & why)


def _rules_of_end(at_end: HangEvent) -> list[Callable[..., Verdict]]:
    waiting = at_end.waiting
    is_overdue = any(op.is_overdue for op in waiting)
    is_lasting = not at_end.is_past and any(op.age_ns >= NOTABLE_NS for op in waiting)
    may_hang = is_overdue or is_lasting or at_end.is_over
    return [judge_hang, judge_killed] if may_hang else [judge_killed]


def is_unresolved(event: HangEvent, trace: RunTrace) -> bool:
    """False when every op that was overdue then has ended well since: a stall, not a hang; when
    none of them could have been seen to end; and when it speaks of an earlier life of its ranks."""
    overdue = [op for op in event.waiting if op.is_overdue]
    if not overdue and any(op.is_overdue for op in event.in_flight):
        return False
    ranks = {rank.global_rank: rank for rank in trace.ranks}
    if any(r.session.created_real_ns > event.observed_real_ns > 0 for r in trace.ranks):
        return False
    return not overdue or not all(_has_ended_well(op, ranks.get(op.global_rank)) for op in overdue)


def _has_ended_well(op: InFlightOp, rank: RankTrace | None) -> bool:
    if rank is None:
        return False
    rows = rank.ops[rank.ops["op_seq"] == op.op_seq]
    ended = rows["state"][rank.comm_ids_of(rows["comm_index"]) == op.comm_id]
    return bool((ended == OpState.DONE).any())
