"""Stamps and sizes that cannot be: what rests on them would be wrong, so it is said first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.analysis.stamp_quality import (
    absurd_sizes,
    communication_of,
    end_shifts_ns,
    reversed_stamps,
    unequal_ends,
)
from comminsight.diagnosis import codes_data as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict, told
from comminsight.model.activity import Activity
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "data_stamps"
MIN_UNEQUAL = 3  # collectives of a class whose ends differ, clocks aligned
MIN_ZERO_RATIO = 0.02  # of the stamps


def data_stamps_rule(job: JobEvidence) -> Iterator[Claim]:
    """DATA_CORRUPT for reversed stamps, ends that differ by more than their op lasts even on
    aligned clocks, and absurd sizes; DATA_INCOMPLETE for stamps that are zero. A few zero stamps,
    and ops without an end when the capture stopped, are neither."""
    own = communication_of(job.activities)
    evidence = [*_reversed(own), *_absurd(own), *_unequal(own)]
    if evidence:
        yield _claim(job, Cause.DATA_CORRUPT, evidence)
        return
    zero = [one for one in own if one.start_ns <= 0]
    if len(zero) > MIN_ZERO_RATIO * max(1, len(own)):
        ranks = sorted({one.global_rank for one in zero})
        said = told(codes.ZERO_STAMPS, ranks=ranks, n=len(zero))
        yield _claim(job, Cause.DATA_INCOMPLETE, [said])


def _reversed(own: Sequence[Activity]) -> Iterator[Evidence]:
    for one in reversed_stamps(own):
        yield told(
            codes.REVERSED, comm=one.comm_label, place=one.place, n=one.n, shift_ns=one.shift_ns
        )


def _absurd(own: Sequence[Activity]) -> Iterator[Evidence]:
    found = absurd_sizes(own)
    if found:
        first = found[0]
        yield told(codes.ABSURD_SIZE, rank=first.global_rank, name=first.name, n=len(found))


def _unequal(own: Sequence[Activity]) -> Iterator[Evidence]:
    """Ends that no shift of whole clocks explains."""
    for one in unequal_ends(own, end_shifts_ns(own)):
        if one.n >= MIN_UNEQUAL:
            yield told(
                codes.UNEQUAL_ENDS, name=one.name, comm=one.comm_label,
                spread_ns=one.spread_ns, duration_ns=one.duration_ns, n=one.n,
            )  # fmt: skip


def _claim(job: JobEvidence, cause: Cause, evidence: Sequence[Evidence]) -> Claim:
    found = JobFinding(
        RULE, cause, Confidence.HIGH if cause is Cause.DATA_CORRUPT else Confidence.MEDIUM,
        evidence=tuple(evidence), next_actions=(message(codes.CAPTURE_AGAIN),),
    )  # fmt: skip
    return Claim(job_verdict(job, found))
