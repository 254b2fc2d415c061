"""Records that are missing: holes in op numbers, early ends, kernels that nobody saw.

A hole is never an absent rank: what was not recorded may well have happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from comminsight.diagnosis import codes_data as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict, told
from comminsight.model.activity import ActivityKind, NumberedOps
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "data_holes"
MIN_EARLY_RATIO = 0.02  # of the numbers that others have, missing at the end of a rank's file
MIN_EARLY = 3


def data_holes_rule(job: JobEvidence) -> Iterator[Claim]:
    """DATA_INCOMPLETE with the holes by rank and communicator; it accounts for ranks that seem
    absent or to lead the others."""
    evidence = [*_holes(job), *_lost_kernels(job), *_no_communication(job)]
    if not evidence:
        return
    found = JobFinding(
        RULE, Cause.DATA_INCOMPLETE, Confidence.HIGH,
        evidence=tuple(evidence), next_actions=(message(codes.CAPTURE_AGAIN),),
    )  # fmt: skip
    yield Claim(job_verdict(job, found))


def _holes(job: JobEvidence) -> Iterator[Evidence]:
    by_comm: dict[str, list[NumberedOps]] = defaultdict(list)
    for one in job.numbered:
        if one.numbers:
            by_comm[one.comm_label].append(one)
    for comm, members in sorted(by_comm.items()):
        last_of_all = max(one.numbers[-1] for one in members)
        recorded = set().union(*(one.numbers for one in members))
        for one in members:
            first, last = one.numbers[0], one.numbers[-1]
            inside = {number for number in recorded if first <= number <= last}
            if missing := len(inside - set(one.numbers)):
                yield told(
                    codes.HOLES, rank=one.global_rank, comm=comm, n=missing, first=first, last=last
                )
            is_early = last_of_all - last >= max(MIN_EARLY, MIN_EARLY_RATIO * last_of_all)
            if is_early and job.hang is None:
                yield told(
                    codes.EARLY_END, rank=one.global_rank, comm=comm, last=last, others=last_of_all
                )


def _lost_kernels(job: JobEvidence) -> Iterator[Evidence]:
    for one in job.launches:
        if one.n_kernels < one.n_launches:
            yield told(
                codes.LOST_KERNELS, rank=one.global_rank,
                n_launches=one.n_launches, n_kernels=one.n_kernels,
            )  # fmt: skip


def _no_communication(job: JobEvidence) -> Iterator[Evidence]:
    """A trace of several ranks without communication: its names were not known, or it was cut."""
    ranks = {one.global_rank for one in job.activities}
    kinds = {one.kind for one in job.activities}
    if len(ranks) > 1 and ActivityKind.COMMUNICATION not in kinds:
        yield told(codes.NO_COMMUNICATION, n_ranks=len(ranks), n_kernels=len(job.activities))
