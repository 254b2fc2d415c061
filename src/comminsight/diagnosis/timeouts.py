"""The time limits that logs tell, which are easily taken for each other."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.log_index import events_with, lines_with
from comminsight.analysis.log_ranks import LogRanks
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.codes import message
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Evidence

S = 1_000_000_000
MS = 1_000_000
BY_CODE = {
    LogCode.TORCH_WATCHDOG_TIMEOUT: ("work", "timeout_ms", MS),
    LogCode.TORCH_STORE_TIMEOUT: ("store", "timeout_ms", MS),
    LogCode.TORCH_BARRIER_FAILED: ("barrier", "timeout_ms", MS),
    LogCode.GLOO_TIMEOUT: ("work", "waited_ms", MS),
    LogCode.TORCH_WATCHDOG_STUCK: ("heartbeat", "stuck_s", S),
}
# variables that look like the limit of an operation, and are that of something else
BY_NAME = {
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": ("heartbeat", S),
    "NCCL_HEARTBEAT_TIMEOUT_SEC": ("heartbeat", S),
    "NCCL_TIMEOUT": ("unread", S),
    "NCCL_ASYNC_TIMEOUT": ("unread", S),
}


def limits_told(job: JobEvidence, ranks: LogRanks) -> Iterator[Evidence]:
    """Every limit that ran out or is set, by kind and value, with the ranks that told it."""
    found: dict[tuple[str, int], set[int]] = {}
    for log, event in lines_with(job.logs, *BY_CODE):
        kind, name, unit_ns = BY_CODE[event.code]
        value = event.values.get(name, 0)
        if isinstance(value, int) and value:
            own = found.setdefault((kind, value * unit_ns), set())
            own.add(ranks.rank_of(log, event))
    for kind, limit_ns in raised_limits(job, 0):
        found.setdefault((kind, limit_ns), set())
    for (kind, limit_ns), own in sorted(found.items()):
        said = message(
            logs.LIMIT_SEEN, limit=f"limit.{kind}", limit_ns=limit_ns, ranks=sorted(own - {-1})
        )
        yield Evidence(kind="log", message=said)


def raised_limits(job: JobEvidence, above_ns: int) -> list[tuple[str, int]]:
    """The variables that set another limit than that of an operation, above ``above_ns``."""
    found = set()
    for event in events_with(job.logs, [LogCode.ENVIRONMENT, LogCode.NCCL_ENV]):
        name, value = event.values.get("name"), str(event.values.get("value", ""))
        if name in BY_NAME and value.isdigit() and len(value) < 10:
            kind, unit_ns = BY_NAME[str(name)]
            if int(value) * unit_ns > above_ns:
                found.add((kind, int(value) * unit_ns))
    return sorted(found)
