"""GID tables of network ports: what an entry is good for, and what changed in them.

A GID is an IPv6 address. ``fe80::/10`` is valid on its own link only; ``::ffff:0:0/96`` holds an
IPv4 address and is routed where that is; all zeros is an empty entry (RFC 4291).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import AddressValueError, IPv6Address

from comminsight.analysis.log_ranks import short_host
from comminsight.model.host_facts import GidEntry

Port = tuple[str, str]  # short host name, device


class GidScope(Enum):
    """How far an address reaches."""

    NONE = auto()
    LINK = auto()
    ROUTED = auto()


def scope_of(gid: str) -> GidScope:
    """The scope of a GID; NONE for an empty entry and for text that is no address."""
    try:
        address = IPv6Address(gid)
    except AddressValueError:
        return GidScope.NONE
    if address.is_unspecified:
        return GidScope.NONE
    return GidScope.LINK if address.is_link_local else GidScope.ROUTED


def same_gid(one: str, other: str) -> bool:
    """True when both are one address, however they are written."""
    try:
        return IPv6Address(one) == IPv6Address(other)
    except AddressValueError:
        return False


@dataclass(frozen=True, slots=True)
class GidDrift:
    """An entry that was ``before`` and is ``after``; the former GID stands at ``moved_to`` now, -1:
    nowhere."""

    host: str
    device: str
    index: int
    before: str
    after: str
    moved_to: int


def tables(gids: Iterable[GidEntry]) -> dict[Port, dict[int, GidEntry]]:
    """The first known entry of each index, by port."""
    found: dict[Port, dict[int, GidEntry]] = defaultdict(dict)
    for entry in sorted(gids, key=lambda entry: entry.observed_ns):
        found[short_host(entry.host), entry.device].setdefault(entry.index, entry)
    return dict(found)


def drifts(gids: Iterable[GidEntry]) -> list[GidDrift]:
    """The entries that differ between the first and the last time that their port was looked at."""
    by_port: dict[Port, dict[int, dict[int, str]]] = defaultdict(lambda: defaultdict(dict))
    for entry in gids:
        port = short_host(entry.host), entry.device
        by_port[port][entry.observed_ns][entry.index] = _gid(entry)
    found = []
    for (host, device), seen in sorted(by_port.items()):
        first, last = seen[min(seen)], seen[max(seen)]
        for index, before in sorted(first.items()):
            after = last.get(index, "")
            if len(seen) > 1 and before and not same_gid(before, after):
                moved_to = next((i for i, gid in last.items() if same_gid(gid, before)), -1)
                found.append(GidDrift(host, device, index, before, after, moved_to))
    return found


def port_of(gid: str, gids: Iterable[GidEntry]) -> Port | None:
    """The port that has this GID; None where no table or several have it."""
    owners = {(short_host(e.host), e.device) for e in gids if same_gid(e.gid, gid)}
    return next(iter(owners)) if len(owners) == 1 else None


def routed_index(by_port: dict[Port, dict[int, GidEntry]]) -> int | None:
    """The lowest index at which every port has a routable entry of RoCE version 2; None without."""
    fitting = [
        {i for i, e in table.items() if e.kind == "v2" and scope_of(e.gid) is GidScope.ROUTED}
        for table in by_port.values()
    ]
    return min(set.intersection(*fitting), default=None) if fitting else None


def _gid(entry: GidEntry) -> str:
    return entry.gid if scope_of(entry.gid) is not GidScope.NONE else ""
