"""Ranks that stand still in an op which all its members entered: what a blocked path looks like."""

from __future__ import annotations

from comminsight.diagnosis.hang import judge_hang
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Verdict


def all_present_stuck(job: JobEvidence) -> Verdict | None:
    """The verdict of the hang where every member entered; None for any other, and without one."""
    if job.hang is None:
        return None
    verdict = judge_hang(job.hang, job.communicators)
    return verdict if verdict.cause is Cause.ALL_PRESENT_STUCK else None


def stuck_ranks(stuck: Verdict) -> tuple[int, ...]:
    """The ranks inside, ascending."""
    return tuple(sorted({*stuck.culprits, *stuck.victims}))
