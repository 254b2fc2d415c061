"""Why a path gave no answer, by the GID tables of its ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comminsight.analysis.gid_table import (
    GidScope,
    Port,
    drifts,
    port_of,
    routed_index,
    same_gid,
    scope_of,
    tables,
)
from comminsight.analysis.log_index import lines_in_order
from comminsight.analysis.log_ranks import short_host
from comminsight.analysis.transport_errors import TransportError, reporters
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import told
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Confidence, Evidence, Message

INDEX_NAME = "NCCL_IB_GID_INDEX"
INDEX_CODES = frozenset({LogCode.NCCL_ENV, LogCode.ENVIRONMENT})
MIN_FAILED_PAIRS = 3  # distinct pairs of ports


@dataclass(frozen=True, slots=True)
class Reason:
    """Why; ``hosts`` are those whose end is at fault, none where it is no single end."""

    evidence: tuple[Evidence, ...]
    next_actions: tuple[Message, ...] = ()
    hosts: frozenset[str] = frozenset()
    device: str = ""
    confidence: Confidence = Confidence.MEDIUM


def gid_reason(job: JobEvidence, errors: Sequence[TransportError]) -> Reason | None:
    """The reason that the tables and the lines themselves tell; the strongest first."""
    index = used_index(job, errors)
    return (
        _drift(job, errors, index)
        or _cross_rail(job, errors)
        or _link_local(errors)
        or _wrong_entry(job, errors, index)
    )


def used_index(job: JobEvidence, errors: Sequence[TransportError]) -> int | None:
    """The index in use, where all that tell one tell the same."""
    named = {e.event.values["gid_index"] for e in errors if "gid_index" in e.event.values}
    settings = (event for _, event in lines_in_order(job.logs, INDEX_CODES))
    named |= {e.values.get("value", "") for e in settings if e.values.get("name") == INDEX_NAME}
    indices = {int(text) for one in named if (text := str(one)).isdecimal()}
    return indices.pop() if len(indices) == 1 else None


def _drift(job: JobEvidence, errors: Sequence[TransportError], index: int | None) -> Reason | None:
    """Entries in use that changed; an end at fault where one host alone has such."""
    gids = {error.told(name) for error in errors for name in ("local_gid", "remote_gid")}
    found = [
        drift
        for drift in drifts(job.hosts.gids)
        if drift.index == index or any(same_gid(drift.before, gid) for gid in gids)
    ]
    if not found:
        return None
    hosts = {drift.host for drift in found}
    said = tuple(
        told(
            codes.GID_DRIFT, kind="host", host=drift.host, device=drift.device, index=drift.index,
            before=drift.before, after=drift.after, moved_to=drift.moved_to,
        )
        for drift in found
    )  # fmt: skip
    return Reason(
        said,
        tuple(message(codes.RESTART_NODE, host=host) for host in sorted(hosts)),
        frozenset(hosts) if len(hosts) == 1 else frozenset(),
        found[0].device if len(found) == 1 else "",
        Confidence.HIGH,
    )


def _link_local(errors: Sequence[TransportError]) -> Reason | None:
    """An end that is valid on its own network only, towards one that is routed. Where both ends
    are such it may be right: it is the usual form of InfiniBand."""
    bad = [e for e in errors if _reach(e) == (GidScope.LINK, GidScope.ROUTED)]
    if not bad:
        return None
    first = bad[0]
    said = told(
        codes.GID_LINK_LOCAL, kind="log", ranks=reporters(bad), text=first.event.text,
        gid=first.told("local_gid"), remote_gid=first.told("remote_gid"),
    )  # fmt: skip
    hosts = {error.host for error in bad} - {""}
    named = frozenset(hosts) if len(hosts) == 1 else frozenset[str]()
    return Reason((said,), (), named, first.told("device"))


def _reach(error: TransportError) -> tuple[GidScope, GidScope]:
    return scope_of(error.told("local_gid")), scope_of(error.told("remote_gid"))


def _wrong_entry(
    job: JobEvidence, errors: Sequence[TransportError], index: int | None
) -> Reason | None:
    """An entry in use that is not a routable one of version 2, where all hosts have such."""
    by_port = tables(job.hosts.gids)
    better = routed_index(by_port)
    if index is None or better is None or index == better:
        return None
    hosts = {error.host for error in errors}
    used = [
        (port, table)
        for port, table in sorted(by_port.items())
        if port[0] in hosts and index in table
    ]
    bad = [
        (port, table)
        for port, table in used
        if table[index].kind == "v1" or scope_of(table[index].gid) is not GidScope.ROUTED
    ]
    if not bad:
        return None
    said = tuple(
        told(
            codes.GID_USED, kind="host", host=port[0], device=port[1], index=index,
            entries=[f"{i} {e.gid or '-'} {e.kind}".strip() for i, e in sorted(table.items())],
        )
        for port, table in bad
    )  # fmt: skip
    return Reason(said, (message(codes.USE_GID, index=better),))


def _cross_rail(job: JobEvidence, errors: Sequence[TransportError]) -> Reason | None:
    """All pairs that failed are of two rails, and pairs of one rail worked."""
    rails = _rail_of_port(job)
    ends = {_ends(job, error) for error in errors}
    failed = {(rails.get(a), rails.get(b)) for a, b in ends}
    if len(ends) < MIN_FAILED_PAIRS or any(None in pair or pair[0] == pair[1] for pair in failed):
        return None
    good = [
        (rails.get(_port(row.devices[0])), rails.get(_port(row.devices[1])))
        for row in job.bandwidth
        if len(row.devices) == 2 and row.busbw_gbs > 0
    ]
    worked = [pair for pair in good if None not in pair]
    if not worked or any(a != b for a, b in worked):
        return None
    pairs = sorted(f"{a}-{b}" for a, b in failed)
    said = told(codes.CROSS_RAIL, kind="log", pairs=pairs, n_good=len(worked))
    return Reason((said,), (message(codes.CROSS_NIC_OFF),), confidence=Confidence.HIGH)


def _ends(job: JobEvidence, error: TransportError) -> tuple[Port, Port]:
    """The ports at both ends, ("", "") for one that nothing names."""
    device = error.told("device")
    local = (error.host, device) if device else port_of(error.told("local_gid"), job.hosts.gids)
    remote = port_of(error.told("remote_gid"), job.hosts.gids)
    return local or ("", ""), remote or ("", "")


def _rail_of_port(job: JobEvidence) -> dict[tuple[str, str], int]:
    links = job.links.links if job.links is not None else ()
    return {(short_host(link.host), link.device): link.rail for link in links if link.rail >= 0}


def _port(name: str) -> tuple[str, str]:
    host, _, device = name.partition("/")
    return short_host(host), device
