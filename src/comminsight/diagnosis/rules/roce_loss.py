"""Packets lost on an Ethernet that should be lossless, by counters or by a hole in the curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.analysis.bandwidth import size_dips
from comminsight.analysis.counter_rise import CounterRise, still_counters, unusual_rises
from comminsight.analysis.placement import ranks_at
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.all_present import all_present_stuck
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict, told
from comminsight.diagnosis.link_evidence import map_missing, rise_said
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence, Message, Verdict

RULE = "roce_loss"
# of the RDMA port itself and of the Ethernet port below it (vendor counter documents)
LOSS_COUNTERS = frozenset(
    {
        "out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "roce_adp_retrans",
        "roce_adp_retrans_to", "rx_discards_phy", "tx_discards_phy", "rx_out_of_buffer",
        "rx_prio_discards",
    }
)  # fmt: skip
DECIDING = ("out_of_sequence", "packet_seq_err", "rx_discards_phy")
Dips = Sequence[tuple[list[BandwidthRow], float]]


def roce_loss_rule(job: JobEvidence) -> Iterator[Claim]:
    """ROCE_LOSS at the ports whose loss counters rose, where ops are stuck or collapse at some
    sizes; a hypothesis where only sizes collapse. InfiniBand has credits and is never accused, nor
    is a network of which nobody knows what it is."""
    layers = {port.link_layer for port in job.hosts.ports} - {""}
    if "infiniband" in layers:
        return
    dips = size_dips(job.bandwidth)
    rises = unusual_rises(job.counters, LOSS_COUNTERS)
    is_felt = bool(dips) or (bool(rises) and all_present_stuck(job) is not None)
    if not is_felt:
        return
    if not layers:
        yield Claim(abstained(job, RULE, _said(rises, dips), [message(codes.MISSING_LINK_LAYER)]))
        return
    verdict = _at_ports(job, rises, dips) if rises else _hypothesis(job, dips)
    yield Claim(verdict, explains=frozenset({Cause.SLOW_LINK}))


def _said(rises: list[CounterRise], dips: Dips) -> tuple[Evidence, ...]:
    return (*(rise_said(rise) for rise in rises), *map(_dip_said, dips))


def _at_ports(job: JobEvidence, rises: list[CounterRise], dips: Dips) -> Verdict:
    said = _said(rises, dips)
    missing = [one for host in sorted({r.host for r in rises}) for one in map_missing(job, host)]
    if missing:
        return abstained(job, RULE, said, missing)
    ports = sorted({f"{rise.host}/{rise.device}" for rise in rises})
    culprits = {r for rise in rises for r in ranks_at(job.links, rise.host, rise.device)}
    if not culprits:  # unused, or an interface whose port the map has by another name
        return abstained(job, RULE, said, [message(codes.MISSING_LINK_MAP)])
    found = JobFinding(
        rule=RULE,
        cause=Cause.ROCE_LOSS,
        confidence=Confidence.MEDIUM,
        culprits=tuple(sorted(culprits)),
        place=Place(node=", ".join(sorted({r.host for r in rises})), port=", ".join(ports)),
        evidence=said,
        next_actions=(message(codes.CHECK_FLOW_CONTROL),),
    )
    return job_verdict(job, found)


def _hypothesis(job: JobEvidence, dips: Dips) -> Verdict:
    found = JobFinding(
        rule=RULE,
        cause=Cause.ROCE_LOSS,
        confidence=Confidence.LOW,
        evidence=(*map(_dip_said, dips), *_still(job)),
        missing=(_deciding(),),
        next_actions=(message(codes.CHECK_FLOW_CONTROL),),
    )
    return job_verdict(job, found)


def _still(job: JobEvidence) -> Iterator[Evidence]:
    still, n_ports = still_counters(job.counters, LOSS_COUNTERS)
    if still:
        yield told(codes.COUNTERS_STILL, counters=still, n_ports=n_ports)


def _deciding() -> Message:
    return message(codes.MISSING_LOSS_COUNTERS, counters=list(DECIDING))


def _dip_said(dip: tuple[list[BandwidthRow], float]) -> Evidence:
    rows, usual_gbs = dip
    return told(
        codes.SIZE_DIP, op=op_name(rows[0].op), low_bytes=rows[0].size_bytes,
        high_bytes=rows[-1].size_bytes, busbw_gbs=max(row.busbw_gbs for row in rows),
        usual_gbs=usual_gbs,
    )  # fmt: skip
