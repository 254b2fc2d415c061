"""Communication that no compute hides, where the trace shows it: how much, and in which class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from comminsight.analysis.exposed import exposed_ops
from comminsight.analysis.exposure import Exposure, exposures
from comminsight.diagnosis import codes_data as codes
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict, told
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence, Message

RULE = "exposure"
MIN_EXPOSED_RATIO = 0.1  # of the step
SURE_STEPS = 3
LATE_SHARE, LATE_BYTES_RATIO = 0.1, 0.8  # of the backward pass, of the bytes


def exposure_rule(job: JobEvidence) -> Iterator[Claim]:
    """EXPOSED_COMM where a typical rank and step has at least ``MIN_EXPOSED_RATIO`` of its time in
    communication that nothing hides; nothing where there is no compute in the trace."""
    found = [one for one in exposures(job.activities) if len(one.compute)]
    if not found:
        return
    ratios = [one.exposed_ns / one.span_ns for one in found if one.span_ns]
    if not ratios or float(np.median(ratios)) < MIN_EXPOSED_RATIO:
        return
    n_steps = len({one.step for one in found})
    late = late_bytes_ratio(job.activities)
    evidence = [_how_much(found, float(np.median(ratios)), n_steps), *_where(job, found)]
    if late >= LATE_BYTES_RATIO:
        evidence.append(told(codes.LATE_BYTES, ratio=late))
    yield Claim(
        job_verdict(
            job,
            JobFinding(
                RULE,
                Cause.EXPOSED_COMM,
                Confidence.MEDIUM if n_steps >= SURE_STEPS else Confidence.LOW,
                evidence=tuple(evidence),
                next_actions=tuple(_actions(evidence, late)),
                measures={
                    "exposed_ns": float(np.median([one.exposed_ns for one in found])),
                    "exposed_ratio": float(np.median(ratios)),
                    "overlap_ratio": _overlap_ratio(found),
                },
                steps=(min(one.step for one in found), max(one.step for one in found)),
            ),
        )
    )


def _overlap_ratio(found: Sequence[Exposure]) -> float:
    total = sum(one.communication_ns for one in found)
    return sum(one.overlapped_ns for one in found) / total if total else 0.0


def _how_much(found: Sequence[Exposure], ratio: float, n_steps: int) -> Evidence:
    exposed_ns = round(float(np.median([one.exposed_ns for one in found])))
    n_ranks = len({one.global_rank for one in found})
    return told(codes.EXPOSED, exposed_ns=exposed_ns, ratio=ratio, n_steps=n_steps, n_ranks=n_ranks)


def _where(job: JobEvidence, found: Sequence[Exposure]) -> Iterator[Evidence]:
    """The class of communication with the most exposed time."""
    ops = exposed_ops(job.activities, found)
    if not ops:
        return
    first = ops[0]
    name = op_name(first.op) if first.op else "communication"
    ratio = first.exposed_ns / max(1, sum(one.exposed_ns for one in ops))
    yield told(codes.EXPOSED_CLASS, name=name, comm=first.comm_label, ratio=ratio)


def late_bytes_ratio(activities: Sequence[Activity]) -> float:
    """Share of the bytes of communication, begun during a backward pass or right after it, that
    began only in its last ``LATE_SHARE``; 0 where no backward pass is known."""
    late = total = 0
    windows: dict[tuple[int, int], list[Activity]] = {}
    for one in activities:
        if one.kind is ActivityKind.COMPUTE and one.phase == "backward":
            windows.setdefault((one.global_rank, one.step), []).append(one)
    for one in activities:
        own = windows.get((one.global_rank, one.step))
        if own is None or one.kind is not ActivityKind.COMMUNICATION:
            continue
        begin, end = min(a.start_ns for a in own), max(a.end_ns for a in own)
        if one.start_ns >= begin:
            total += one.size_bytes
            late += one.size_bytes * (one.start_ns >= end - LATE_SHARE * (end - begin))
    return late / total if total else 0.0


def _actions(evidence: Sequence[Evidence], late: float) -> Iterator[Message]:
    if late >= LATE_BYTES_RATIO:
        yield message(codes.EARLIER_BUCKETS)
        return
    for one in evidence:
        if one.message.code == codes.EXPOSED_CLASS:
            yield message(codes.PREFETCH, name=one.message.params["name"])
