"""A process without a file descriptor left for another connection."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.log_limits import FILES, UNLIMITED, limits, lines_of, named, setting
from comminsight.analysis.log_ranks import ranks_of
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, job_verdict
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "descriptors"
CONSEQUENCES = frozenset({Cause.RANK_DEAD, Cause.INIT_STUCK, Cause.PEER_UNREACHABLE})


def descriptors_rule(job: JobEvidence) -> Iterator[Claim]:
    """FD_LIMIT of the ranks that say so, with the limit and an estimate of what they need."""
    if not job.logs:
        return
    ranks = ranks_of(job.logs, job.world_size)
    lines = lines_of(job.logs, ranks, [LogCode.NCCL_FD_LIMIT])
    if not lines:
        return
    culprits = named(lines)
    first = lines[0].event
    said = message(
        logs.CALL_FAILED, ranks=list(culprits), call=str(first.values.get("call", "open")),
        error="too many open files",
    )  # fmt: skip
    evidence = [Evidence(kind="log", message=said, text=first.text)]
    told = limits(job.logs, FILES)
    for one in told[:1]:
        value = "unlimited" if one.value == UNLIMITED else str(one.value)
        listed = message(logs.LIMIT_VALUE, limit=FILES, value=value, source=one.event.file)
        evidence.append(Evidence(kind="log", message=listed, text=one.event.text))
    evidence += _needed(job, max(job.world_size, ranks.world_size))
    missing = () if told else (message(logs.MISSING_RESOURCE_LIMIT, limit=FILES),)
    found = JobFinding(
        rule=RULE, cause=Cause.FD_LIMIT, confidence=Confidence.HIGH, culprits=culprits,
        place=Place(node=", ".join(sorted({line.host for line in lines} - {""}))),
        evidence=tuple(evidence), missing=missing,
        next_actions=(message(logs.RAISE_DESCRIPTORS),),
    )  # fmt: skip
    yield Claim(job_verdict(job, found), first.time, CONSEQUENCES)


def _needed(job: JobEvidence, world: int) -> Iterator[Evidence]:
    """Threads times sockets of NCCL's socket transport, to and from every peer."""
    n_threads = setting(job.logs, "NCCL_SOCKET_NTHREADS", 1)
    n_per_peer = n_threads * setting(job.logs, "NCCL_NSOCKS_PERTHREAD", 1)
    if world > 1:
        needed = 2 * (world - 1) * n_per_peer
        said = message(logs.SOCKETS_NEEDED, n_ranks=world, n_per_peer=2 * n_per_peer, needed=needed)
        yield Evidence(kind="log", message=said)
