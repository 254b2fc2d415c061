"""Why a class of collectives takes long, from the traces of all ranks: arrival or transfer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.analysis.arrival_shares import ArrivalShares, arrival_shares
from comminsight.analysis.stamp_quality import communication_of
from comminsight.diagnosis import codes_data as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, abstained, job_verdict, told
from comminsight.model.activity import Activity
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence, Message

RULE = "arrival"
MIN_INSTANCES = 5
MIN_SKEW_RATIO = 0.5  # of the time inside the class
MIN_LAST_RATIO = 0.7  # of the instances, in which one rank comes last
MIN_TIME_RATIO = 0.05  # of the whole time, lost by arrival
RESIDUAL_FACTOR = 3.0  # by which the skew must exceed what the clocks still differ by


def arrival_rule(job: JobEvidence) -> Iterator[Claim]:
    """COMPUTE_STRAGGLER with the rank that comes last in nearly every collective of a class that
    spends most of its time waiting; NO_VERDICT with the shares where nobody does."""
    own = communication_of(job.activities)
    if len({one.global_rank for one in own}) < 2:
        return
    span_ns = _span_ns(job.activities)
    for found in arrival_shares(own):
        is_lasting = found.n >= MIN_INSTANCES and found.skew_ns >= MIN_TIME_RATIO * span_ns
        if is_lasting and found.skew_ns >= MIN_SKEW_RATIO * found.duration_ns:
            yield _claim(job, found)


def _claim(job: JobEvidence, found: ArrivalShares) -> Claim:
    rank, n_last = max(found.last.items(), key=lambda item: (item[1], -item[0]))
    evidence = tuple(_evidence(job, found))
    is_one = n_last >= MIN_LAST_RATIO * found.n
    is_clear = found.skew_ns / found.n >= RESIDUAL_FACTOR * found.residual_ns
    if not (is_one and is_clear):
        missing = () if _baseline_ns(job, found) else (_no_baseline(found),)
        return Claim(abstained(job, RULE, evidence, missing))
    victims = tuple(sorted(other for other in _ranks(job) if other != rank))
    return Claim(
        job_verdict(
            job,
            JobFinding(
                RULE, Cause.COMPUTE_STRAGGLER, Confidence.MEDIUM, culprits=(rank,),
                victims=victims, evidence=evidence,
                missing=() if _baseline_ns(job, found) else (_no_baseline(found),),
            ),
        )
    )  # fmt: skip


def _evidence(job: JobEvidence, found: ArrivalShares) -> Iterator[Evidence]:
    known_ns = _baseline_ns(job, found) * found.n
    transfer_ns = min(found.transfer_ns, known_ns) if known_ns else found.transfer_ns
    other_ns = found.duration_ns - found.skew_ns - transfer_ns
    total_ns = max(1, found.duration_ns)
    yield told(
        codes.ARRIVALS, name=found.name, duration_ns=round(found.duration_ns / found.n),
        skew_ratio=found.skew_ns / total_ns, transfer_ratio=transfer_ns / total_ns,
        other_ratio=max(0.0, other_ns / total_ns), n=found.n,
    )  # fmt: skip
    if found.shift_ns:
        yield told(codes.ALIGNED, shift_ns=found.shift_ns, residual_ns=found.residual_ns)
    if not found.comm_label:
        yield told(codes.BY_ORDER, n=found.n)


def _no_baseline(found: ArrivalShares) -> Message:
    return message(codes.MISSING_BASELINE, name=found.name)


def _baseline_ns(job: JobEvidence, found: ArrivalShares) -> int:
    """How long an op of the class takes without skew, by the baseline run; 0 unknown."""
    if job.baseline is None:
        return 0
    times = sorted(
        one.end_ns - one.start_ns
        for one in communication_of(job.baseline.activities)
        if (one.op, one.size_bytes) == (found.op, found.size_bytes) and one.end_ns > one.start_ns
    )
    return times[len(times) // 2] if times else 0


def _ranks(job: JobEvidence) -> set[int]:
    return {one.global_rank for one in job.activities}


def _span_ns(activities: Sequence[Activity]) -> int:
    whole = [one for one in activities if one.end_ns > one.start_ns > 0]
    return max(one.end_ns for one in whole) - min(one.start_ns for one in whole) if whole else 0
