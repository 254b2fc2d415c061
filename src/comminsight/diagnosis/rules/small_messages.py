"""Many collectives too small for their link: most of their time is start-up and not transfer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from comminsight.diagnosis import codes_data as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, abstained, job_verdict, told
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence

RULE = "small_messages"
MIN_OPS = 20  # of one class in a step
MIN_SMALL_RATIO = 0.5  # of them below the knee
KNEE_RATIO = 0.5  # of the best bandwidth, reached at the knee
MIN_TIME_RATIO = 0.1  # of the step, in ops of the class


def small_messages_rule(job: JobEvidence) -> Iterator[Claim]:
    """SMALL_MESSAGES for a class of ops of which a step has many below the knee of the bandwidth;
    NO_VERDICT where there are many and no bandwidth was measured."""
    for op, own in sorted(_by_op(job.activities).items()):
        n_ops = _per_step(own)
        if n_ops < MIN_OPS or _time_ratio(job.activities, own) < MIN_TIME_RATIO:
            continue
        sizes = np.array([one.size_bytes for one in own if one.size_bytes > 0])
        if not len(sizes):
            continue
        knee = knee_of([row for row in job.bandwidth if row.op == op])
        if knee == 0:
            yield Claim(abstained(job, RULE, missing=(message(codes.MISSING_KNEE),)))
            continue
        ratio = float((sizes < knee).mean())
        if ratio >= MIN_SMALL_RATIO:
            yield _claim(job, round(n_ops), round(float(np.median(sizes))), knee, ratio)


def knee_of(rows: Sequence[BandwidthRow]) -> int:
    """The smallest size whose bandwidth is half of the best one; 0 where fewer than three sizes
    were measured or bandwidth does not grow with size."""
    sizes = sorted({row.size_bytes for row in rows})
    if len(sizes) < 3:
        return 0
    speed = [max(row.busbw_gbs for row in rows if row.size_bytes == size) for size in sizes]
    if speed[0] >= KNEE_RATIO * max(speed):
        return 0
    return next(s for s, v in zip(sizes, speed, strict=True) if v >= KNEE_RATIO * max(speed))


def _by_op(activities: Sequence[Activity]) -> dict[int, list[Activity]]:
    found: dict[int, list[Activity]] = defaultdict(list)
    for one in activities:
        if one.kind is ActivityKind.COMMUNICATION and one.op and one.end_ns > one.start_ns:
            found[one.op].append(one)
    return found


def _per_step(own: Sequence[Activity]) -> float:
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for one in own:
        counts[one.global_rank, one.step] += 1
    return float(np.median(list(counts.values())))


def _time_ratio(activities: Sequence[Activity], own: Sequence[Activity]) -> float:
    """Share of the time of all ranks that ops of the class take."""
    spans: dict[int, list[int]] = defaultdict(list)
    for one in activities:
        if one.end_ns > one.start_ns:
            spans[one.global_rank] += [one.start_ns, one.end_ns]
    total_ns = sum(max(times) - min(times) for times in spans.values())
    return sum(one.end_ns - one.start_ns for one in own) / max(1, total_ns)


def _claim(job: JobEvidence, n_ops: int, size_bytes: int, knee_bytes: int, ratio: float) -> Claim:
    said = told(
        codes.SMALL_OPS, n_ops=n_ops, size_bytes=size_bytes, knee_bytes=knee_bytes, ratio=ratio
    )
    found = JobFinding(
        RULE, Cause.SMALL_MESSAGES, Confidence.MEDIUM, evidence=(said,),
        next_actions=(message(codes.LARGER_BUCKETS, knee_bytes=knee_bytes),),
        measures={"n_small_ops": float(n_ops)},
    )  # fmt: skip
    return Claim(job_verdict(job, found))
