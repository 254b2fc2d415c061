"""What the kernels of hosts say near the time at which a path failed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from comminsight.analysis.log_index import lines_in_order, lines_with
from comminsight.analysis.log_order import apart_at_least_ns
from comminsight.analysis.log_ranks import LogRanks, short_host
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

STALLING = frozenset(
    {
        LogCode.KERNEL_OOM_KILL, LogCode.KERNEL_HUNG_TASK, LogCode.KERNEL_LOCKUP,
        LogCode.KERNEL_PCIE, LogCode.KERNEL_HARDWARE, LogCode.KERNEL_SUSPEND, LogCode.KERNEL_XID,
    }
)  # fmt: skip
KERNEL_CODES = frozenset(code for code in LogCode if code.value.startswith("kernel_"))
BEFORE_NS = 120_000_000_000  # retries of a transfer take up to half a minute, and may repeat
AFTER_NS = 2_000_000_000  # stamps of whole seconds


@dataclass(frozen=True, slots=True)
class HostEvent:
    """An event of a host, ``delay_ns`` before the line that it is held against."""

    host: str
    event: LogEvent
    delay_ns: int

    @property
    def name(self) -> str:
        """What it was, as one word."""
        is_port = self.event.code is LogCode.NCCL_IB_EVENT
        return "gid_change" if is_port else self.event.code.value


def host_events(
    logs: Sequence[JobLog], at: LogEvent, hosts: Collection[str]
) -> Iterator[HostEvent]:
    """Events on one of ``hosts`` that may have stalled it, shortly before the line ``at``."""
    for log, event in lines_in_order(logs, STALLING):
        host = short_host(event.host or log.host)
        delay_ns = apart_at_least_ns(event, at) if host in hosts else None
        if delay_ns is not None and -AFTER_NS <= delay_ns <= BEFORE_NS:
            yield HostEvent(host, event, max(0, delay_ns))


def gid_changes(
    logs: Sequence[JobLog], at: LogEvent, hosts: Collection[str]
) -> Iterator[HostEvent]:
    """Times before the line ``at`` at which a port of one of ``hosts`` told that its GIDs changed;
    however long ago, since what uses an old one fails at its next retry."""
    for log, event in lines_with(logs, LogCode.NCCL_IB_EVENT):
        host = short_host(event.host or log.host)
        delay_ns = apart_at_least_ns(event, at) if host in hosts else None
        is_gid = "gid" in str(event.values.get("event", "")).lower()
        if is_gid and delay_ns is not None and delay_ns >= 0:
            yield HostEvent(host, event, delay_ns)


def has_kernel_log(logs: Sequence[JobLog], hosts: Collection[str]) -> bool:
    """True where a line of the kernel of one of the hosts is at hand."""
    return any(
        short_host(event.host or log.host) in hosts
        for log, event in lines_with(logs, *KERNEL_CODES)
    )


def killed_ranks(logs: Sequence[JobLog], ranks: LogRanks) -> frozenset[int]:
    """The ranks whose process the kernel says it killed."""
    found = {
        ranks.by_process.get((short_host(event.host or log.host), event.pid), -1)
        for log, event in lines_with(logs, LogCode.KERNEL_OOM_KILL, LogCode.KERNEL_SEGFAULT)
    }
    return frozenset(found - {-1})
