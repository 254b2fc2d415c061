"""Ports that trained to less than those like them, and links that show as more than they are."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.bandwidth import compare_paths, usable
from comminsight.analysis.log_ranks import ranks_of
from comminsight.analysis.placement import is_used, network_rows, ranks_at
from comminsight.analysis.port_rates import Ceiling, SlowPort, ceilings, slower_ports
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict, told
from comminsight.diagnosis.link_evidence import map_missing
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence, Message, Verdict

RULE = "port_rate"
SLOW_RATIO = 0.75  # of the rate of its peers
REACHED = (0.8, 1.02)  # of a ceiling: protocol takes the rest, rates are rounded


def nic_asymmetry_rule(job: JobEvidence) -> Iterator[Claim]:
    """NIC_ASYMMETRY of each port in use that is slower than its peers, unless the bandwidth over it
    is as good as theirs."""
    if not job.hosts.ports:
        return
    in_use = [port for port in job.hosts.ports if is_used(job.links, port.host, port.device)]
    for slow in slower_ports(in_use, SLOW_RATIO):
        verdict = _asymmetry(job, slow)
        yield Claim(verdict, explains=frozenset({Cause.SLOW_LINK}))


def _asymmetry(job: JobEvidence, slow: SlowPort) -> Verdict:
    name = f"{slow.host}/{slow.device}"
    said = told(
        codes.PORT_RATE, kind="host", host=slow.host, device=slow.device, rate_gbs=slow.rate_gbs,
        usual_gbs=slow.usual_gbs,
    )  # fmt: skip
    users = ranks_at(job.links, slow.host, slow.device)
    is_slow, is_normal = _effect(job, name, users)
    if not users and not is_slow:
        return abstained(job, RULE, [said], map_missing(job, slow.host))
    unseen = message(codes.MISSING_NIC_BANDWIDTH, host=slow.host, device=slow.device)
    if is_normal and not is_slow:
        return abstained(job, RULE, [said])
    found = JobFinding(
        rule=RULE,
        cause=Cause.NIC_ASYMMETRY,
        confidence=Confidence.HIGH if is_slow else Confidence.LOW,
        culprits=users,
        place=Place(node=slow.host, port=name),
        evidence=(said,),
        missing=(*(() if is_slow else (unseen,)), *_of_map(job, slow.host, users)),
        next_actions=(message(codes.CHECK_PORT, host=slow.host, device=slow.device),),
        measures={"rate_gbs": slow.rate_gbs},
    )
    return job_verdict(job, found)


def _of_map(job: JobEvidence, host: str, users: tuple[int, ...]) -> list[Message]:
    """That there may be more users than those that are named."""
    return map_missing(job, host) if users else []


def _effect(job: JobEvidence, name: str, users: tuple[int, ...]) -> tuple[bool, bool]:
    """Whether paths over the port are slow, and whether some are certainly not."""
    paths = compare_paths(network_rows(job, ranks_of(job.logs, job.world_size)))

    def is_over(devices: tuple[str, ...], ranks: tuple[int, ...]) -> bool:
        return name in devices if devices else not set(users).isdisjoint(ranks)

    slow = any(is_over(row.devices, row.ranks) for row in paths.slow)
    return slow, any(is_over(row.devices, row.ranks) for row in paths.normal)


def ceiling_rule(job: JobEvidence) -> Iterator[Claim]:
    """SLOW_LINK where several interfaces are one link and the bandwidth is what the links carry:
    that is the finding, and nothing else is wrong."""
    ports = [port for port in job.hosts.ports if is_used(job.links, port.host, port.device)]
    limits = [limit for limit in ceilings(ports) if limit.n_links < limit.n_listed]
    rows = [row for row in usable(job.bandwidth) if len(row.hosts) != 1]
    if not limits or not rows:
        return
    limit = min(limits, key=lambda one: one.ceiling_gbs)
    best = max(row.busbw_gbs for row in rows)
    low, high = REACHED
    if low * limit.ceiling_gbs <= best <= high * limit.ceiling_gbs:
        yield Claim(_ceiling(job, limit, best))


def _ceiling(job: JobEvidence, limit: Ceiling, busbw_gbs: float) -> Verdict:
    found = JobFinding(
        rule=RULE,
        cause=Cause.SLOW_LINK,
        confidence=Confidence.LOW,
        place=Place(node=limit.host),
        evidence=(_ceiling_said(limit, busbw_gbs),),
        measures={"ceiling_gbs": limit.ceiling_gbs, "busbw_gbs": busbw_gbs},
    )
    return job_verdict(job, found)


def _ceiling_said(limit: Ceiling, busbw_gbs: float) -> Evidence:
    return told(
        codes.CEILING, kind="host", ceiling_gbs=limit.ceiling_gbs, n_links=limit.n_links,
        n_listed=limit.n_listed, busbw_gbs=busbw_gbs,
    )  # fmt: skip
