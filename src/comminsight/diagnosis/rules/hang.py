"""The hang that the last view of the ranks shows."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from comminsight.diagnosis import codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.given_up import with_given_up
from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.log_origin import log_origin
from comminsight.diagnosis.logged_ends import with_log_lines, with_logged_ends
from comminsight.diagnosis.logged_hosts import with_logged_hosts
from comminsight.diagnosis.long_work import as_long_work
from comminsight.diagnosis.refinements import REFINEMENTS
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Verdict


def hang_rule(job: JobEvidence) -> Iterator[Claim]:
    """The claim of ``judge_hang``, for which ranks that failed first by their logs are dead; none
    without a view of the ranks."""
    if job.hang is not None:
        origin = log_origin(job)
        event = with_logged_hosts(with_logged_ends(job.hang, origin), job.logs)
        event = with_given_up(event, job)
        verdict = with_log_lines(judge_hang(event, job.communicators), event, origin)
        verdict = as_long_work(verdict, event, job.logs)
        if job.n_records:  # read from files of others: no recorder of our own was there
            verdict = _of_dumps(job, verdict)
        for refine in REFINEMENTS:
            verdict = refine(verdict, job)
        is_death = verdict.cause is Cause.RANK_DEAD and bool(job.logs)  # which tell the same
        explained = frozenset({Cause.RANK_DEAD} if is_death else ())
        yield Claim(verdict, explains=explained, explains_ranks=frozenset(verdict.culprits))


def _of_dumps(job: JobEvidence, verdict: Verdict) -> Verdict:
    """Without asking for what only a recorder of our own leaves, and trusted less where a culprit
    may have been in a call that no dump shows, or where it is taken for granted that all who are
    in one op stand still there."""
    is_present = verdict.cause is Cause.ALL_PRESENT_STUCK and not verdict.culprits
    if is_present and job.doubted.intersection(verdict.victims):
        verdict = replace(verdict, cause=Cause.NO_VERDICT, confidence=Confidence.NONE)
    missing = tuple(one for one in verdict.missing if one.code != codes.MISSING_BOX)
    is_doubtful = bool(job.doubted.intersection(verdict.culprits))
    confidence = Confidence.LOW if is_doubtful else verdict.confidence
    is_undated = job.hang is not None and not job.hang.overdue_limit_ns
    if is_undated and (verdict.cause, confidence) == (Cause.ALL_PRESENT_STUCK, Confidence.HIGH):
        confidence = Confidence.MEDIUM
    return replace(
        verdict,
        missing=missing,
        confidence=confidence,
        coverage=replace(verdict.coverage, records_read=job.n_records),
    )
