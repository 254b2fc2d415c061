"""Training steps over all ranks as a correction numbers them, instead of ``align_steps``."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from comminsight.analysis.alignment import AlignedStep
from comminsight.model.calibration import LEFT_RAW, Correction, SessionCorrection, StepMark
from comminsight.model.step import StepSummary
from comminsight.model.trace import RunTrace


def calibrated_steps(trace: RunTrace, correction: Correction) -> tuple[AlignedStep, ...]:
    """Aligned steps in ascending order; every step of every rank is in exactly one.

    The parts of a split step are one member; it, a fused one and one that was left raw are not
    complete: no mean takes them. A step left raw stands at the rank's own number, or at the next
    that the rank has no step of.
    """
    corrected = {session.session_id: session for session in correction.sessions}
    members: dict[int, dict[int, StepSummary]] = {}
    for rank in trace.ranks:
        own = trace.steps.get(rank.session.session_id, ())
        if own:
            session = corrected[rank.session.session_id]
            for number, summary in _numbered(session, own):
                members.setdefault(number, {})[rank.global_rank] = summary
    return tuple(AlignedStep(number, members[number]) for number in sorted(members))


def joined_steps(first: StepSummary, second: StepSummary) -> StepSummary:
    """Two consecutive steps of a session as one that is not complete."""
    end_ns = max(first.end_ns, second.end_ns)
    return msgspec.structs.replace(
        second, step=first.step, first=first.first, anchor=first.anchor or second.anchor,
        start_ns=first.start_ns, end_ns=end_ns, span_ns=end_ns - first.start_ns,
        period_ns=first.period_ns + second.period_ns if second.period_ns else 0,
        n_ops=first.n_ops + first.n_ops_between + second.n_ops, first_seq=first.first_seq,
        n_late=first.n_late + second.n_late, n_lost=first.n_lost + second.n_lost,
        coverage_complete=False, phases=(*first.phases, *second.phases),
    )  # fmt: skip


def _numbered(
    session: SessionCorrection, own: tuple[StepSummary, ...]
) -> Iterator[tuple[int, StepSummary]]:
    """The session's steps by number, each number once."""
    numbered: dict[int, StepSummary] = {}
    left_raw = []
    for summary, (number, span) in zip(own, session.numbers(), strict=True):
        if number == LEFT_RAW:
            left_raw.append(summary)
        elif number in numbered:
            numbered[number] = joined_steps(numbered[number], summary)
        else:
            numbered[number] = _incomplete(summary) if span.mark is StepMark.FUSED else summary
    for summary in left_raw:
        number = summary.step
        while number in numbered:
            number += 1
        numbered[number] = _incomplete(summary)
    yield from numbered.items()


def _incomplete(summary: StepSummary) -> StepSummary:
    return msgspec.structs.replace(summary, coverage_complete=False)
