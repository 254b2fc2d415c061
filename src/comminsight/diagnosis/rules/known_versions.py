"""Versions of NCCL that are known for what is seen; never the version alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from comminsight.analysis.log_index import events_with
from comminsight.analysis.log_ranks import ranks_of
from comminsight.analysis.log_versions import (
    Version,
    architectures,
    are_all_inside,
    is_one_behind,
    printed_versions,
    version_of,
    version_text,
)
from comminsight.analysis.ras_sides import still_sides
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "known_versions"


@dataclass(frozen=True, slots=True)
class KnownFault:
    """``first`` and ``fixed`` bound the versions, the latter not included; (0, 0, 0): no end is
    known, and only ``first`` is meant. ``shows`` tells whether the job has the symptom."""

    name: str
    first: Version
    fixed: Version
    shows: Callable[[JobEvidence], bool]

    def has(self, version: Version) -> bool:
        """True for a version with the fault."""
        return self.first <= version < self.fixed if any(self.fixed) else version == self.first


def known_versions_rule(job: JobEvidence) -> Iterator[Claim]:
    """KNOWN_BAD_VERSION where all that is printed is one version of the table and its symptom is
    there."""
    if not job.logs:
        return
    printed = printed_versions(job.logs, ranks_of(job.logs, job.world_size))
    versions = {one.version for one in printed} | set(_asked(job))
    if len(versions) != 1:
        return
    version = versions.pop()
    line = printed[0].event.text if printed else ""
    for fault in KNOWN_FAULTS:
        if fault.has(version) and fault.shows(job):
            fixed = version_text(fault.fixed) if any(fault.fixed) else ""
            said = message(
                logs.KNOWN_FAULT, version=version_text(version), fixed_in=fixed,
                fault=f"known_fault.{fault.name}",
            )  # fmt: skip
            found = JobFinding(
                rule=RULE, cause=Cause.KNOWN_BAD_VERSION, confidence=Confidence.MEDIUM,
                evidence=(Evidence(kind="log", message=said, text=line),),
                next_actions=(message(logs.UPGRADE_NCCL, fixed_in=fixed),),
            )  # fmt: skip
            yield Claim(job_verdict(job, found))


def _lacks_net(job: JobEvidence) -> bool:
    return any(True for _ in events_with(job.logs, [LogCode.NCCL_NO_NET]))


def _asked(job: JobEvidence) -> Iterator[Version]:
    """Versions that RAS answered with."""
    for reading in job.ras:
        if (version := version_of(reading.answer.nccl_version)) is not None:
            yield version


def _lags_on_arm(job: JobEvidence) -> bool:
    if architectures(job.logs) != {"aarch64"}:
        return False
    if job.hang is not None:
        return is_one_behind(job.hang, job.communicators)
    return any(
        same and sides.n_behind == 1 and sides.n_launched_ahead == sides.n_launched + 1
        for sides, _, same in still_sides(job.ras)
    )


def _is_all_stuck(job: JobEvidence) -> bool:
    return job.hang is not None and are_all_inside(job.hang, job.communicators)


# by reports on NCCL's own tracker, each with a test of another version or a setting that helped
KNOWN_FAULTS: tuple[KnownFault, ...] = (
    KnownFault("net_lookup", (2, 0, 0), (2, 27, 3), _lacks_net),
    KnownFault("proxy_leak", (2, 27, 0), (2, 29, 3), _lags_on_arm),
    KnownFault("protocol_hang", (2, 4, 2), (0, 0, 0), _is_all_stuck),
)
