"""What watchdogs and heartbeat monitors say of themselves: that they stood still, or were late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.analysis.log_hang import Waited
from comminsight.analysis.log_index import lines_with
from comminsight.analysis.log_ranks import LogRanks
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.codes import message
from comminsight.model.job_evidence import JobEvidence, JobLog
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Evidence

# a watchdog looks every tenth of a second: one that tells of more was not running
HAS_STOOD_RATIO = 2.0


def stood_evidence(stood: Sequence[Waited]) -> Iterator[Evidence]:
    """The ranks whose watchdogs stood still, with the longest time."""
    if stood:
        most = max(stood, key=lambda one: one.ran_ns)
        said = message(
            logs.WATCHER_STOOD, ranks=sorted({one.rank for one in stood if one.rank >= 0}),
            ran_ns=most.ran_ns, limit_ns=most.limit_ns,
        )  # fmt: skip
        yield Evidence(kind="log", message=said, text=most.event.text)


def heartbeats(job: JobEvidence) -> Iterator[tuple[JobLog, LogEvent]]:
    """The lines with which heartbeat monitors end processes."""
    return lines_with(job.logs, LogCode.TORCH_WATCHDOG_STUCK)


def heartbeat_ranks(job: JobEvidence, ranks: LogRanks) -> tuple[int, ...]:
    """Whose processes heartbeat monitors ended, ascending."""
    found = {ranks.rank_of(log, event) for log, event in heartbeats(job)}
    return tuple(sorted(found - {-1}))


def heartbeat_evidence(job: JobEvidence, ranks: LogRanks) -> Iterator[Evidence]:
    """That heartbeats stopped beside something else: a consequence."""
    found = list(heartbeats(job))
    if found:
        said = message(logs.HEARTBEAT_LATER, ranks=list(heartbeat_ranks(job, ranks)))
        yield Evidence(kind="log", message=said, text=found[0][1].text)
