"""Ranks that did not come to a monitored barrier, as the rank that watches it says."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.log_index import lines_with
from comminsight.analysis.log_ranks import ranks_of
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "monitored_barrier"
MS = 1_000_000
WATCHER = 0  # of a monitored barrier: the first rank of its group


def monitored_barrier_rule(job: JobEvidence) -> Iterator[Claim]:
    """RANK_NOT_ENTERED of the ranks that failed to pass, where these, those that say that they
    reached it, and the one that watches are all ranks: a group's own numbers are then global."""
    if not job.logs or job.hang is not None:
        return
    lines = [
        event
        for _, event in lines_with(job.logs, LogCode.TORCH_BARRIER_FAILED)
        if isinstance(event.values.get("ranks"), tuple | list)
    ]
    if len(lines) != 1:
        return
    event = lines[0]
    named = event.values["ranks"]
    culprits = tuple(sorted(named)) if isinstance(named, tuple | list) else ()
    reached = {
        one.comm_rank for _, one in lines_with(job.logs, LogCode.TORCH_BARRIER_REACHED)
    }  # fmt: skip
    world = max(job.world_size, ranks_of(job.logs, job.world_size).world_size)
    if not world or {WATCHER, *reached, *culprits} != set(range(world)) or WATCHER in culprits:
        return
    limit = event.values.get("timeout_ms", 0)
    limit_ns = limit * MS if isinstance(limit, int) else 0
    said = message(logs.BARRIER_MISSED, ranks=list(culprits), limit_ns=limit_ns)
    found = JobFinding(
        rule=RULE, cause=Cause.RANK_NOT_ENTERED, confidence=Confidence.MEDIUM, culprits=culprits,
        victims=tuple(sorted({WATCHER, *reached} - set(culprits))),
        evidence=(Evidence(kind="log", message=said, text=event.text),),
        next_actions=(message(logs.GATHER_STACKS),),
    )  # fmt: skip
    yield Claim(job_verdict(job, found), event.time)
