"""A correction from the raw steps of a run: the numbers, the templates and the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from comminsight.model.calibration import (
    LEFT_RAW,
    Correction,
    CorrectionCounts,
    SessionCorrection,
    StepMark,
    TemplateVersion,
)
from comminsight.model.ranges import range_expand
from comminsight.model.step import StepSummary
from comminsight.semantics.calibration import calibrate
from comminsight.semantics.step_table import SessionStepList


def correction_of(
    sessions: Sequence[SessionStepList], *, run_id: str, raw_sha256: str
) -> Correction:
    """The correction; ``raw_sha256`` is the hash of the raw steps given."""
    corrected = calibrate(sessions)
    return Correction(
        run_id=run_id, raw_sha256=raw_sha256, sessions=corrected, counts=counts_of(corrected),
        templates=template_versions(step for one in sessions for step in one.steps),
    )  # fmt: skip


def template_versions(steps: Iterable[StepSummary]) -> tuple[TemplateVersion, ...]:
    """The templates that steps were found with, each once, by name."""
    found = {(s.template, s.template_version, s.template_file_version) for s in steps}
    return tuple(TemplateVersion(*one) for one in sorted(found))


def counts_of(sessions: Sequence[SessionCorrection]) -> CorrectionCounts:
    """Local steps by what the corrections say of them."""
    spans = [span for session in sessions for span in session.spans]
    marks: Counter[StepMark] = Counter()
    confidences: Counter[str] = Counter()
    for span in spans:
        marks[span.mark] += span.n_steps
        confidences[span.confidence.value] += span.n_steps
    covered = {
        (session.part, step)
        for session in sessions
        for number, span in session.numbers()
        if number != LEFT_RAW
        for step in range(number - span.n_before, number + span.n_behind + 1)
    }
    return CorrectionCounts(
        n_sessions=len(sessions), n_local_steps=sum(marks.values()), n_steps=len(covered),
        n_renumbered=sum(
            s.n_steps for s in spans if s.step not in {LEFT_RAW, s.local_step}
        ),
        n_fused=marks[StepMark.FUSED], n_split=marks[StepMark.SPLIT], n_raw=marks[StepMark.RAW],
        n_missing=sum(len(range_expand(session.missing)) for session in sessions),
        n_parts=len({session.part for session in sessions} - {-1}),
        by_confidence=dict(confidences),
    )  # fmt: skip
