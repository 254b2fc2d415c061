"""Ports that went down, by the events that NCCL and the kernel write of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from comminsight.analysis.log_index import lines_in_order
from comminsight.analysis.log_order import apart_at_least_ns
from comminsight.analysis.log_ranks import short_host
from comminsight.model.host_facts import NetInterface
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

DOWN_EVENTS = frozenset({"port error", "link down"})
BACK_EVENTS = frozenset({"port active", "link up"})


@dataclass(frozen=True, slots=True)
class PortLoss:
    """A port that went down; ``back`` is the event of its return, None where there is none."""

    host: str
    device: str
    down: tuple[LogEvent, ...]
    back: LogEvent | None

    @property
    def back_after_ns(self) -> int | None:
        """From the last time that it went down before it was back; None where unknown."""
        if self.back is None:
            return None
        gaps = [gap for one in self.down if (gap := apart_at_least_ns(one, self.back)) is not None]
        return min((gap for gap in gaps if gap >= 0), default=None)


def port_losses(logs: Sequence[JobLog], interfaces: Iterable[NetInterface] = ()) -> list[PortLoss]:
    """Every port of which a line says that it went down; the same event told by several processes
    of a host is one. The kernel names interfaces, NCCL the devices above them: ``interfaces`` tell
    which these are."""
    above = {(short_host(one.host), one.interface): one.device for one in interfaces}
    down: dict[tuple[str, str], list[LogEvent]] = defaultdict(list)
    back: dict[tuple[str, str], list[LogEvent]] = defaultdict(list)
    for host, event in _events(logs):
        name = _device(event)
        port = host, above.get((host, name), name)
        if _is(event, DOWN_EVENTS, "down"):
            down[port].append(event)
        elif _is(event, BACK_EVENTS, "up"):
            back[port].append(event)
    return [
        PortLoss(host, device, tuple(events), next(iter(back[host, device]), None))
        for (host, device), events in sorted(down.items())
    ]


def _events(logs: Sequence[JobLog]) -> Iterator[tuple[str, LogEvent]]:
    for log, event in lines_in_order(logs, {LogCode.NCCL_IB_EVENT, LogCode.KERNEL_LINK}):
        yield short_host(event.host or log.host), event


def _device(event: LogEvent) -> str:
    return str(event.values.get("interface") or event.values.get("device") or "")


def _is(event: LogEvent, names: frozenset[str], state: str) -> bool:
    said = str(event.values.get("event", "")).strip().lower()
    return said in names or str(event.values.get("link_state", "")).lower() == state
