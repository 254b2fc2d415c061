"""The network devices of each process by the numbers that NCCL's channels call them.

The number is the place in the list of devices that the process printed: processes of one host may
be given different cards, so that a list counts for its own process alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from comminsight.analysis.log_index import lines_in_order
from comminsight.analysis.log_ranks import Process, short_host
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

_ENTRY = re.compile(r"\[(\d{1,4})\](?:=\{([^{}]{0,1024})\}|([\w.-]{1,64}:\S{1,200}))")
_PORT = re.compile(r"(?:\[\d{1,4}\] ?)?([\w.-]{1,64}):(\d{1,3})/(?:IB|RoCE)(?:/\w{1,16})*")
_INTERFACE = re.compile(r"([\w.-]{1,64}):\S{1,200}")
_NET = re.compile(r"NET/([\w .-]{1,48})/(\d{1,4})(?![\w.-])")
_OF_IB = re.compile(r"IB|IBext\w{0,16}|NCCL RDMA Plugin\w{0,8}(?: v\d{1,4})?")

Port = tuple[str, int]  # device and the number of its port, 0 for an interface of sockets
LISTS = frozenset({LogCode.NCCL_IB_DEVICES, LogCode.NCCL_SOCKET_DEVICES, LogCode.NCCL_IB_MADE})


@dataclass(slots=True)
class Devices:
    """What one process printed. ``ib`` and ``sockets`` are the ports of each number; a number that
    two lines call differently has none."""

    ib: dict[int, tuple[Port, ...]] = field(default_factory=dict)
    sockets: dict[int, tuple[Port, ...]] = field(default_factory=dict)

    def ports(self, net: str, number: int) -> tuple[Port, ...]:
        """The ports behind a number of a network; none where nothing tells them."""
        if net == "Socket":
            return self.sockets.get(number, ())
        return self.ib.get(number, ()) if _OF_IB.fullmatch(net) else ()


def net_of(event: LogEvent) -> tuple[str, int] | None:
    """Network and number of a channel's line; None where the channel uses no network."""
    match = _NET.match(str(event.values.get("transport", "")))
    return (match[1], int(match[2])) if match else None


def writer_of(log: JobLog, event: LogEvent) -> Process:
    """The process that wrote a line of NCCL."""
    return short_host(event.host or log.host), event.pid


def devices_of(logs: Sequence[JobLog]) -> Mapping[Process, Devices]:
    """By process what it printed of its devices."""
    found: dict[Process, Devices] = defaultdict(Devices)
    for log, event in lines_in_order(logs, LISTS):
        own = found[writer_of(log, event)]
        if event.code is LogCode.NCCL_SOCKET_DEVICES:
            _add(own.sockets, _interfaces(str(event.values.get("devices", ""))))
        elif event.code is LogCode.NCCL_IB_DEVICES:
            _add(own.ib, _ports(str(event.values.get("devices", ""))))
        else:
            _add(own.ib, _made(event, own.ib))
    return found


def _add(known: dict[int, tuple[Port, ...]], new: Mapping[int, tuple[Port, ...]]) -> None:
    for number, ports in new.items():
        known[number] = ports if known.get(number, ports) == ports else ()


def _ports(listed: str) -> dict[int, tuple[Port, ...]]:
    """Of ``[0]mlx5_0:1/IB [1]={[1] mlx5_1:1/RoCE, [2] mlx5_2:1/RoCE}``. Where a single device has
    another number than its place, it is unknown which of the two a channel means."""
    found: dict[int, tuple[Port, ...]] = {}
    for place, (number, merged, single) in enumerate(_ENTRY.findall(listed)):
        parts = [_PORT.fullmatch(part.strip()) for part in (merged or single).split(",")]
        ports = tuple((part[1], int(part[2])) for part in parts if part is not None)
        is_whole = len(ports) == len(parts) and int(number) == place
        found[place] = ports if is_whole else ()
    return found


def _interfaces(listed: str) -> dict[int, tuple[Port, ...]]:
    found: dict[int, tuple[Port, ...]] = {}
    for place, (number, _, single) in enumerate(_ENTRY.findall(listed)):
        match = _INTERFACE.fullmatch(single)
        found[place] = ((match[1], 0),) if match and int(number) == place else ()
    return found


def _made(event: LogEvent, listed: Mapping[int, tuple[Port, ...]]) -> dict[int, tuple[Port, ...]]:
    """A device that was made of the ones of the list, joined by +; of a card with several ports in
    the list it is unknown which."""
    number, names = event.values.get("number"), str(event.values.get("name", "")).split("+")
    if not isinstance(number, int):
        return {}
    by_name: dict[str, set[Port]] = defaultdict(set)
    for ports in listed.values():
        for port in ports:
            by_name[port[0]].add(port)
    if len(names) == 1 and number not in listed:
        return {}  # written before the list, which tells it with its port
    every = [by_name.get(name, set()) for name in dict.fromkeys(names)]
    is_told = len(every) == len(names) and all(len(ports) == 1 for ports in every)
    return {number: tuple(sorted(min(ports) for ports in every)) if is_told else ()}
