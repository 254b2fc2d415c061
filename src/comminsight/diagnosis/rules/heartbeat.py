"""Heartbeat monitors that ended processes though no operation was stuck."""

from __future__ import annotations

import re
from collections.abc import Iterator

from comminsight.analysis.log_faults import TIMEOUTS
from comminsight.analysis.log_index import events_with
from comminsight.analysis.log_ranks import ranks_of
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, abstained, job_verdict
from comminsight.diagnosis.watchdogs import heartbeat_ranks, heartbeats
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "heartbeat"
S = 1_000_000_000
PENDING = re.compile(r"workMetaList_\.size\(\)=(\d{1,9})", re.ASCII)
STUCK_NOT_OPS = TIMEOUTS - {LogCode.TORCH_WATCHDOG_STUCK}


def heartbeat_rule(job: JobEvidence) -> Iterator[Claim]:
    """HEARTBEAT_FALSE_ALARM where a heartbeat stopped, no operation of any rank had reached its
    limit, and none of those ranks had one pending; without the last, no verdict."""
    lines = [event for _, event in heartbeats(job)]
    ranks = ranks_of(job.logs, job.world_size)
    culprits = heartbeat_ranks(job, ranks)
    if not lines or not culprits or _has_timeouts(job):
        return
    stuck_ns = max(_seconds(event) for event in lines) * S
    told = message(logs.HEARTBEAT_ALONE, ranks=list(culprits), stuck_ns=stuck_ns)
    evidence = (Evidence(kind="log", message=told, text=lines[0].text), *_gil(job, culprits))
    if not _has_nothing_pending(job, lines, culprits):
        yield Claim(
            abstained(job, RULE, evidence, (message(logs.MISSING_COUNTERS),),
                      (message(logs.GATHER_STACKS),))
        )  # fmt: skip
        return
    found = JobFinding(
        rule=RULE,
        cause=Cause.HEARTBEAT_FALSE_ALARM,
        confidence=Confidence.MEDIUM if len(evidence) > 1 else Confidence.LOW,
        culprits=culprits,
        evidence=evidence,
        next_actions=(message(logs.RAISE_LIMIT, limit="limit.heartbeat", needed_ns=stuck_ns),),
    )
    yield Claim(job_verdict(job, found), lines[0].time)


def _has_timeouts(job: JobEvidence) -> bool:
    return any(True for _ in events_with(job.logs, STUCK_NOT_OPS))


def _has_nothing_pending(
    job: JobEvidence, lines: list[LogEvent], culprits: tuple[int, ...]
) -> bool:
    """True where dumps show no open operation of these ranks, or each line counts none."""
    if job.hang is not None:
        seen = {state.global_rank for state in job.hang.ranks}
        in_flight = {op.global_rank for op in job.hang.in_flight}
        return seen.issuperset(culprits) and not in_flight
    counts = [PENDING.search(event.text) for event in lines]
    return all(count is not None and int(count[1]) == 0 for count in counts)


def _gil(job: JobEvidence, culprits: tuple[int, ...]) -> Iterator[Evidence]:
    held = list(events_with(job.logs, [LogCode.TORCH_GIL_HELD]))
    if held:
        said = message(logs.GIL_HELD, ranks=list(culprits))
        yield Evidence(kind="log", message=said, text=held[0].text)


def _seconds(event: LogEvent) -> int:
    value = event.values.get("stuck_s", 0)
    return value if isinstance(value, int) else 0
