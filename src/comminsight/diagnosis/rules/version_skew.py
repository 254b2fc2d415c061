"""Versions of NCCL that do not agree: between ranks, between two runs, and with what the
environment states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from comminsight.analysis.log_index import events_with
from comminsight.analysis.log_ranks import ranks_of
from comminsight.analysis.log_versions import (
    Version,
    printed_versions,
    stated_versions,
    version_text,
)
from comminsight.analysis.run_differences import settings_that_differ
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, abstained, job_verdict
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "version_skew"
SLOW_RATIO = 0.9  # of the rate of the other run
MIN_RATES = 5  # lines of either run: single ones follow the requests


def version_skew_rule(job: JobEvidence) -> Iterator[Claim]:
    """VERSION_SKEW: of the ranks that run another version than most, or of a run that is slower
    than another one while nothing but the version differs. That a variable states a version which
    is not in use is told without accusing anything: images of containers do so in healthy jobs."""
    if not job.logs:
        return
    found = _between_ranks(job) or _between_runs(job)
    if found is not None:
        yield Claim(job_verdict(job, found))
    elif (said := _of_environment(job)) is not None:
        yield Claim(abstained(job, RULE, [said], (), (message(logs.ONE_VERSION),)))


def _between_ranks(job: JobEvidence) -> JobFinding | None:
    by_rank: dict[int, set[Version]] = defaultdict(set)
    for one in printed_versions(job.logs, ranks_of(job.logs, job.world_size)):
        by_rank[one.rank].add(one.version)
    alike: dict[Version, set[int]] = defaultdict(set)
    for rank, versions in by_rank.items():
        if rank >= 0 and len(versions) == 1:  # what it was built for may stand beside what it runs
            alike[min(versions)].add(rank)
    if len(alike) < 2:
        return None
    ordered = sorted(alike.items(), key=lambda item: (-len(item[1]), item[0]))
    is_tied = len(ordered[0][1]) == len(ordered[1][1])
    wrong = ordered if is_tied else ordered[1:]
    return JobFinding(
        rule=RULE, cause=Cause.VERSION_SKEW,
        confidence=Confidence.LOW if is_tied else Confidence.MEDIUM,
        culprits=tuple(sorted(rank for _, own in wrong for rank in own)),
        evidence=tuple(_run_by(version, own) for version, own in ordered),
        next_actions=(message(logs.ONE_VERSION),),
    )  # fmt: skip


def _run_by(version: Version, own: set[int]) -> Evidence:
    said = message(logs.NCCL_VERSION, ranks=sorted(own), version=version_text(version))
    return Evidence(kind="log", message=said)


def _the_version(job: JobEvidence) -> Version | None:
    versions = {one.version for one in printed_versions(job.logs, ranks_of(job.logs))}
    return versions.pop() if len(versions) == 1 else None


def _between_runs(job: JobEvidence) -> JobFinding | None:
    """Rates of two runs, told only where nothing but the version is known to differ."""
    before = job.baseline
    if before is None or settings_that_differ(job.logs, before.logs):
        return None
    versions = _the_version(before), _the_version(job)
    rates = _rate(before), _rate(job)
    if None in versions or versions[0] == versions[1] or not all(rates):
        return None
    if rates[1] >= SLOW_RATIO * rates[0]:
        return None
    old, new = (version_text(one) for one in versions if one is not None)
    said = message(
        logs.RUN_RATES, before=rates[0], after=rates[1], before_version=old, after_version=new
    )
    return JobFinding(
        rule=RULE, cause=Cause.VERSION_SKEW, confidence=Confidence.LOW,
        evidence=(Evidence(kind="log", message=said),),
        next_actions=(message(logs.TRY_VERSION, version=old),),
    )  # fmt: skip


def _rate(job: JobEvidence) -> float:
    """The median of what a server generates while it has requests, 0.0 for too few lines."""
    rates = [
        float(rate)
        for event in events_with(job.logs, [LogCode.SERVING_RATE])
        if isinstance(rate := event.values.get("tokens_per_s"), int | float)
        and event.values.get("n_running") != 0
    ]
    return float(median(rates)) if len(rates) >= MIN_RATES else 0.0


def _of_environment(job: JobEvidence) -> Evidence | None:
    running = _the_version(job)
    if running is None:
        return None
    for stated, event in stated_versions(job.logs):
        if stated != running:
            said = message(
                logs.ENV_VERSION, value=str(event.values.get("value", "")),
                version=version_text(running),
            )  # fmt: skip
            return Evidence(kind="log", message=said, text=event.text)
    return None
