"""The verdicts on the job's own records, made before, with what the GPUs of their culprits say."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from comminsight.analysis.device_clock import lower_clock
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.job_finding import told
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Verdict


def recorded_rule(job: JobEvidence) -> Iterator[Claim]:
    """A claim for each of them."""
    yield from (Claim(_with_clock(job, verdict)) for verdict in job.told)


def _with_clock(job: JobEvidence, verdict: Verdict) -> Verdict:
    """A late rank with the clock of its GPU, where that is lower than it was, or than others are.
    A lower clock alone accuses nobody: a GPU that waits is clocked down too."""
    if verdict.cause is not Cause.COMPUTE_STRAGGLER or job.links is None:
        return verdict
    gpus = [gpu for gpu in job.links.gpus if gpu.global_rank in verdict.culprits]
    clocks = [lower_clock(job.counters, gpu.host, gpu.device) for gpu in gpus]
    said = tuple(
        told(
            codes.CLOCK_FELL, host=clock.host, device=clock.device, counter=clock.counter,
            before=clock.usual, after=clock.value,
        )
        for clock in clocks
        if clock is not None
    )  # fmt: skip
    return replace(verdict, evidence=(*verdict.evidence, *said)) if said else verdict
