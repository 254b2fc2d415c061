"""The last view of a run: who is where now, or was where when it ended or began to fail."""

from __future__ import annotations

from collections.abc import Sequence

from comminsight.analysis.alignment import AlignedStep
from comminsight.analysis.stop_place import last_step, usual_phase
from comminsight.capture.session import SessionData
from comminsight.diagnosis.finished_mismatch import RULE as FINISHED
from comminsight.diagnosis.whole_chain import StopPlace, with_whole_chains
from comminsight.model.hang import HangEvent
from comminsight.model.manifest import LaunchManifest
from comminsight.model.report import RunReport
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Verdict
from comminsight.pipeline.breaks import at_first_break
from comminsight.pipeline.ends import as_of, exit_statuses, first_failure
from comminsight.pipeline.facts import ENDED
from comminsight.pipeline.moment import Moment, now_ns
from comminsight.pipeline.observe import last_sign_ns, observe


def final_view(
    sessions: Sequence[SessionData],
    manifests: Sequence[LaunchManifest],
    *,
    end: str,
    overdue_limit_ns: int,
    moment: Moment | None = None,
) -> HangEvent:
    """Who is where now, or was where at the first failure or at the last sign of life."""
    seen, is_running = tuple(sessions), end == "running"
    mono_ns, real_ns = now_ns(moment) if is_running else (last_sign_ns(seen), 0)
    failure = first_failure(seen, manifests)
    if failure is not None:
        seen, mono_ns = as_of(seen, failure), failure.ended_mono_ns
    elif not is_running and (found := at_first_break(seen, manifests)) is not None:
        seen, mono_ns = found
    return observe(
        seen,
        now_mono_ns=mono_ns,
        now_real_ns=real_ns,
        overdue_limit_ns=overdue_limit_ns,
        exit_statuses=exit_statuses(manifests),
        is_past=end in ENDED,
    )


def with_places(report: RunReport, trace: RunTrace, aligned: Sequence[AlignedStep]) -> RunReport:
    """The report with whole chains: of what stopped, after which step and in which phase."""

    def stop_of(verdict: Verdict) -> StopPlace | None:
        found = last_step(aligned, (*verdict.culprits, *verdict.victims))
        op = verdict.first_bad_op
        if found is None or op is None or verdict.rule == FINISHED:  # that one has ended
            return None
        asked = [rank for rank in (*verdict.victims, *verdict.culprits) if rank >= 0]
        phases = {usual_phase(trace, aligned, rank, op) for rank in asked[:4]}
        phases -= {""}
        return StopPlace(*found, phases.pop() if len(phases) == 1 else "")

    return with_whole_chains(report, stop_of)
