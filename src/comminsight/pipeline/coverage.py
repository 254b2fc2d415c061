"""What a verdict of this run has seen, and what it has not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from comminsight.analysis.alignment import AlignedStep
from comminsight.capture.session import SessionData
from comminsight.model.event import UNBOUNDED_NS
from comminsight.model.ranges import missing_ranks
from comminsight.model.records import n_calls
from comminsight.model.tally import NOT_READ, TALLY_NAMES, Severity, Tally
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Coverage
from comminsight.pipeline.pauses import n_switched_off
from comminsight.pipeline.rebuild import SessionSteps

# lost to the verdict: never recorded, or recorded and not usable
LOST = (*NOT_READ, "order_late", "order_bad", "order_dropped")


def run_tally(sessions: Iterable[SessionData], rebuilt: Iterable[SessionSteps]) -> Tally:
    """Every count of every stage, over all sessions."""
    total = Tally()
    for session in sessions:
        total.merge(session.tally)
        total.add("ops_switched_off", n_switched_off(session))
    for one in rebuilt:
        total.merge(one.tally)
    return total


def run_coverage(
    trace: RunTrace, aligned: Sequence[AlignedStep], tally: Tally, off_ratio: float = 0.0
) -> Coverage:
    """Coverage over all ranks and steps.

    ``unseen_step_ratio`` is the share of the ranks' steps that are not complete, at least that of
    the records that are lost (a step may be lost whole), and of the time in which recording was off
    (``off_ratio``). What was read is counted in ops, as losses are: a fold stands for its calls.
    """
    seen = [rank.global_rank for rank in trace.ranks]
    windows = [window for step in aligned for window in step.members.values()]
    complete = sum(window.coverage_complete for window in windows)
    lost = tally.sum_of(LOST)
    records = sum(int(n_calls(rank.ops).sum()) for rank in trace.ranks)
    whole_ratio = complete / len(windows) if windows else 1.0
    seen_ratio = min(whole_ratio, records / (records + lost)) if lost else whole_ratio
    used = sum(all(w.coverage_complete for w in step.members.values()) for step in aligned)
    return Coverage(
        ranks_expected=trace.world_size,
        ranks_seen=len(seen),
        ranks_missing=missing_ranks(trace.world_size, seen),
        records_read=records,
        records_lost=lost,
        steps_used=used,
        steps_excluded=len(aligned) - used,
        clock_error_ns=_clock_error_ns(trace),
        unseen_step_ratio=1 - seen_ratio * (1 - off_ratio),
        tally={name: n for name, n in tally.items() if is_loss(name)},
    )


def _clock_error_ns(trace: RunTrace) -> int:
    """How far the clocks of the nodes may be apart; UNBOUNDED_NS where a node is not aligned."""
    if {rank.session.boot_id for rank in trace.ranks} - trace.clocks.error_ns.keys():
        return UNBOUNDED_NS
    return trace.clocks.max_error_ns


def is_loss(name: str) -> bool:
    """True for counters that speak of loss or error."""
    return TALLY_NAMES[name].severity is not Severity.INFO
