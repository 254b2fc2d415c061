"""The verdicts on the job's own records, made before, with what the GPUs and ports of their
culprits say."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from comminsight.analysis.device_clock import lower_clock
from comminsight.analysis.placement import only_port_of
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import MISSING_PORT, message
from comminsight.diagnosis.job_finding import told
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, ChainLevel, ChainLink, Verdict


def recorded_rule(job: JobEvidence) -> Iterator[Claim]:
    """A claim for each of them."""
    yield from (Claim(_with_port(job, _with_clock(job, verdict))) for verdict in job.told)


def _with_port(job: JobEvidence, verdict: Verdict) -> Verdict:
    """A slow link with the port of its rank, where that rank uses one alone."""
    if verdict.cause is not Cause.SLOW_LINK or len(verdict.culprits) != 1:
        return verdict
    host, device = only_port_of(job.links, verdict.culprits[0])
    if not device:
        return verdict
    said = told(codes.ONLY_PORT, kind="log", host=host, device=device, ranks=list(verdict.culprits))
    level, name = ChainLevel.PORT, f"{host}/{device}"
    others = (link for link in verdict.chain if link.level is not level)
    return replace(
        verdict,
        chain=(*others, ChainLink(level, name)),
        evidence=(*verdict.evidence, said),
        missing=(
            *(one for one in verdict.missing if one.code != MISSING_PORT),
            message(codes.MISSING_PORT_COUNTERS),
        ),
        next_actions=(
            *verdict.next_actions, message(codes.CHECK_PORT, host=host, device=device),
        ),
    )  # fmt: skip


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
