"""Addresses by which ranks try to meet: what each offers, and what could not be reached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from comminsight.analysis.log_index import events_with, lines_with
from comminsight.analysis.log_ranks import LogRanks, short_host
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

# names of interfaces that exist inside one host, and the networks that containers get by default
OF_ONE_HOST = re.compile(r"^(?:lo$|lo:|docker|veth|virbr|br-|cni|cali|flannel|podman|lxc)")
DEFAULT_BRIDGE = re.compile(r"^172\.17\.")
FIRST_DEVICE = re.compile(
    r"\[0\](?P<interface>[^\s:\[]{1,64}):(?P<address>[\w.:%-]{1,64})", re.ASCII
)
NO_PATH_NUMBERS = frozenset({101, 110, 113})  # no network, timed out, no route
NO_PATH_TEXTS = re.compile(r"[Nn]o route|[Tt]imed out|unreachable")


@dataclass(frozen=True, slots=True)
class Offer:
    """The interface and address that a rank gives to the others."""

    rank: int
    host: str
    interface: str
    address: str
    event: LogEvent


@dataclass(frozen=True, slots=True)
class ConnectFailure:
    """A connection that was not made; ``is_without_path``: not because nobody listened."""

    rank: int
    host: str
    peer: str
    error: str
    is_without_path: bool
    event: LogEvent


@dataclass(frozen=True, slots=True)
class StoreClient:
    """A client that gave up on the store."""

    rank: int
    address: str
    port: str
    event: LogEvent


def offers(logs: Sequence[JobLog], ranks: LogRanks) -> list[Offer]:
    """What each process offers, by the first line that tells it: that of the bootstrap, else the
    first socket device."""
    found: dict[tuple[str, int], Offer] = {}
    for log, event in lines_with(logs, LogCode.NCCL_BOOTSTRAP, LogCode.NCCL_SOCKET_DEVICES):
        interface, address = _offered(event)
        host = short_host(event.host or log.host)
        if interface:
            one = Offer(ranks.rank_of(log, event), host, interface, address, event)
            found.setdefault((host, event.pid), one)
    return list(found.values())


def _offered(event: LogEvent) -> tuple[str, str]:
    if event.code is LogCode.NCCL_BOOTSTRAP:
        return str(event.values.get("interface", "")), str(event.values.get("address", ""))
    if event.code is LogCode.NCCL_SOCKET_DEVICES:
        match = FIRST_DEVICE.match(str(event.values.get("devices", "")))
        return (match["interface"], match["address"]) if match else ("", "")
    return "", ""


def is_of_one_host(offer: Offer) -> bool:
    """True for an address that other hosts cannot reach: loopback, or a bridge of containers."""
    is_bridge = bool(OF_ONE_HOST.match(offer.interface) or DEFAULT_BRIDGE.match(offer.address))
    return is_bridge or subnet_of(offer.address) == "127"


def subnet_of(address: str) -> str:
    """The first part of an IPv4 address; "127" is loopback."""
    return address.partition(".")[0]


def connect_failures(logs: Sequence[JobLog], ranks: LogRanks) -> list[ConnectFailure]:
    """Connections of NCCL that were not made."""
    return [
        ConnectFailure(
            rank=ranks.rank_of(log, event),
            host=short_host(event.host or log.host),
            peer=str(event.values.get("peer", "")),
            error=str(event.values.get("error_name", event.values.get("error", ""))),
            is_without_path=_is_without_path(event),
            event=event,
        )
        for log, event in lines_with(logs, LogCode.NCCL_CONNECT_FAILED)
    ]


def _is_without_path(event: LogEvent) -> bool:
    said = f"{event.values.get('error', '')} {event.values.get('error_name', '')}"
    return event.values.get("number") in NO_PATH_NUMBERS or bool(NO_PATH_TEXTS.search(said))


def store_clients(logs: Sequence[JobLog], ranks: LogRanks) -> list[StoreClient]:
    """Clients that tried until their time was over: one attempt that fails is tried again."""
    return [
        StoreClient(
            ranks.rank_of(log, event), str(event.values.get("address", "")),
            str(event.values.get("port", "")), event,
        )
        for log, event in lines_with(logs, LogCode.TORCH_CLIENT_TIMEOUT)
    ]  # fmt: skip


def interfaces_there(logs: Sequence[JobLog]) -> list[str]:
    """The interfaces that a host lists, without loopback."""
    names = {
        str(event.values.get("interface", ""))
        for event in events_with(logs, [LogCode.HOST_INTERFACE])
    }
    return sorted(names - {"lo", ""})
