"""What the ports of a host can carry together, and ports that are slower than those like them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.bandwidth import FASTEST_GBS
from comminsight.analysis.log_ranks import short_host
from comminsight.model.host_facts import PortState

MIN_PEERS = 3


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What a host's links carry together; interfaces with one GUID are one link."""

    host: str
    ceiling_gbs: float
    n_links: int
    n_listed: int


@dataclass(frozen=True, slots=True)
class SlowPort:
    """A port below ``usual_gbs``, the median of its peers."""

    host: str
    device: str
    rate_gbs: float
    usual_gbs: float


def is_up(port: PortState) -> bool:
    """True for a port that carries data at a known rate."""
    return port.state in {"", "active"} and 0 < port.rate_gbs <= FASTEST_GBS


def ceilings(ports: Iterable[PortState]) -> list[Ceiling]:
    """One per host, by name."""
    by_host: dict[str, list[PortState]] = defaultdict(list)
    for port in filter(is_up, ports):
        by_host[short_host(port.host)].append(port)
    found = []
    for host, own in sorted(by_host.items()):
        links = {port.guid or f"{port.device}:{port.port}": port.rate_gbs for port in own}
        found.append(Ceiling(host, sum(links.values()), len(links), len(own)))
    return found


def slower_ports(ports: Sequence[PortState], ratio: float) -> list[SlowPort]:
    """Ports at ``ratio`` of the median rate of their peers or below, where at least three of those
    have exactly that rate."""
    up = [port for port in ports if is_up(port)]
    found = []
    for port in up:
        peers = [p.rate_gbs for p in up if p is not port and p.link_layer == port.link_layer]
        usual = float(np.median(peers)) if peers else 0.0
        if peers.count(usual) >= MIN_PEERS and port.rate_gbs <= ratio * usual:
            found.append(SlowPort(short_host(port.host), port.device, port.rate_gbs, usual))
    return found
