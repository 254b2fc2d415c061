"""Two ends of a path with different MTUs, where transfers between them got no answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from comminsight.analysis.gid_table import port_of
from comminsight.analysis.log_ranks import ranks_of, short_host
from comminsight.analysis.placement import hosts_of_ranks, is_used, ranks_on
from comminsight.analysis.transport_errors import (
    TransportError,
    hosts_by_address,
    reporters,
    transport_errors,
)
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, job_verdict, told
from comminsight.diagnosis.link_evidence import CONSEQUENCES
from comminsight.model.host_facts import PortState
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "mtu"
MIN_PEERS = 2  # hosts that agree, against one that does not


def mtu_rule(job: JobEvidence) -> Iterator[Claim]:
    """MTU_MISMATCH where a transfer without an answer joins two ports of unlike MTU."""
    ports = [p for p in job.hosts.ports if p.active_mtu_bytes and _is_used(job, p)]
    if len({port.active_mtu_bytes for port in ports}) < 2:
        return
    ranks = ranks_of(job.logs, job.world_size)
    errors = [e for e in transport_errors(job.logs, ranks) if not e.is_setup]
    by_address = hosts_by_address(job.logs)
    peers = ((error, _peer_host(job, error, by_address)) for error in errors)
    pair = next((pair for error, peer in peers if (pair := _ends(error, peer, ports))), None)
    if pair is None:
        return
    odd = _odd_host(ports, pair)
    culprits = ranks_on([odd], hosts_of_ranks(job, ranks)) if odd else ()
    reporting = reporters(errors)
    names = sorted({short_host(port.host) for port in pair})
    found = JobFinding(
        rule=RULE,
        cause=Cause.MTU_MISMATCH,
        confidence=Confidence.HIGH if odd else Confidence.MEDIUM,
        culprits=culprits,
        victims=tuple(sorted(set(reporting) - set(culprits))),
        place=Place(node=odd or ", ".join(names), port=_port_name(pair, odd)),
        evidence=(_said(pair, errors[0]),),
        next_actions=(message(codes.SET_MTU, hosts=names),),
    )
    yield Claim(
        job_verdict(job, found),
        began=errors[0].event.time,
        explains=CONSEQUENCES,
        explains_ranks=frozenset(reporting),
    )


def _is_used(job: JobEvidence, port: PortState) -> bool:
    """Of Ethernet: the paths of InfiniBand have the MTU that its manager gives to both ends."""
    if port.link_layer == "infiniband":
        return False
    return port.state in {"", "active"} and is_used(job.links, port.host, port.device)


def _ends(
    error: TransportError, peer: str, ports: Sequence[PortState]
) -> tuple[PortState, PortState] | None:
    """A port of the host that tells the error and one at the other end, of unlike MTU: the two
    that are named, else those of one kind. None where all agree."""
    device = error.told("device")
    own = [p for p in ports if short_host(p.host) == error.host and device in {"", p.device}]
    others = [p for p in ports if short_host(p.host) != error.host]
    if peer:
        others = [p for p in others if short_host(p.host) == peer]
    alike = [(a, b) for a in own for b in others if a.link_layer == b.link_layer]
    same_name = [(a, b) for a, b in alike if a.device == b.device] or alike
    unlike = [(a, b) for a, b in same_name if a.active_mtu_bytes != b.active_mtu_bytes]
    return unlike[0] if unlike and (peer or len(others) == len(unlike)) else None


def _peer_host(job: JobEvidence, error: TransportError, by_address: dict[str, set[str]]) -> str:
    """The host at the other end: by its GID, its name, or its address; "" where none tells it."""
    if (port := port_of(error.told("remote_gid"), job.hosts.gids)) is not None:
        return port[0]
    peer = error.told("peer")
    if short_host(peer) in {short_host(port.host) for port in job.hosts.ports}:
        return short_host(peer)
    hosts = by_address.get(peer, set())
    return min(hosts) if len(hosts) == 1 else ""


def _odd_host(ports: Sequence[PortState], pair: tuple[PortState, PortState]) -> str:
    """The one host of the pair that differs from all others, which agree; "" where none does."""
    layer = pair[0].link_layer
    by_host: dict[str, set[int]] = {}
    for port in ports:
        if port.link_layer == layer:
            by_host.setdefault(short_host(port.host), set()).add(port.active_mtu_bytes)
    usual = Counter(min(mtus) for mtus in by_host.values() if len(mtus) == 1).most_common(1)
    if not usual or usual[0][1] < MIN_PEERS:
        return ""
    odd = [host for host, mtus in by_host.items() if mtus != {usual[0][0]}]
    return odd[0] if len(odd) == 1 else ""


def _port_name(pair: tuple[PortState, PortState], odd: str) -> str:
    shown = [p for p in pair if not odd or short_host(p.host) == odd]
    return ", ".join(f"{short_host(p.host)}/{p.device}" for p in shown)


def _said(pair: tuple[PortState, PortState], error: TransportError) -> Evidence:
    one, other = pair
    return told(
        codes.MTU_DIFFERS, kind="host", text=error.event.text,
        host=short_host(one.host), device=one.device, mtu_bytes=one.active_mtu_bytes,
        other_host=short_host(other.host), other_device=other.device,
        other_bytes=other.active_mtu_bytes,
    )  # fmt: skip
