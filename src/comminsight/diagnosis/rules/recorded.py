"""The verdicts on the job's own records, made before."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.diagnosis.claim import Claim
from comminsight.model.job_evidence import JobEvidence


def recorded_rule(job: JobEvidence) -> Iterator[Claim]:
    """A claim for each of them."""
    yield from map(Claim, job.told)
