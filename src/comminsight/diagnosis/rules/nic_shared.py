"""GPUs of one host behind one network card, where those of other hosts have one each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from comminsight.analysis.bandwidth import MIN_PEERS, compare_paths
from comminsight.analysis.log_ranks import LogRanks, ranks_of
from comminsight.analysis.nic_use import are_lines_whole, shared_cards, sole_users
from comminsight.analysis.placement import network_rows
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict, told
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence, Verdict

RULE = "nic_shared"
MIN_HOSTS = 3  # others, in which nobody shares


def nic_shared_rule(job: JobEvidence) -> Iterator[Claim]:
    """NIC_SHARED where the groups of the ranks behind the card are slow, and groups like them are
    not. Where hosts alike share cards, that is how they are built."""
    of = ranks_of(job.logs, job.world_size)
    use = sole_users(job.logs, of)
    shared = shared_cards(use)
    hosts = {host for host, _, _ in shared}
    n_others = len(use.keys() - hosts)
    if len(hosts) != 1 or n_others < MIN_HOSTS:
        return
    for host, card, ranks in shared:
        said = _seen(host, card, ranks, n_others)
        if are_lines_whole(job.logs, ranks, of):
            verdict = _verdict(job, of, (host, card, ranks), said)
        else:
            missing = [message(codes.MISSING_WHOLE_MAP, host=host)]
            verdict = abstained(job, RULE, said, missing)
        yield Claim(verdict, explains=frozenset({Cause.SLOW_LINK, Cause.NIC_ASYMMETRY}))


def _verdict(
    job: JobEvidence, of: LogRanks, shared: tuple[str, str, tuple[int, ...]], said: list[Evidence]
) -> Verdict:
    host, card, ranks = shared
    paths = compare_paths(network_rows(job, of))
    of_them = [row for row in paths.slow if not set(ranks).isdisjoint(row.ranks)]
    if not of_them or any(not set(ranks).isdisjoint(row.ranks) for row in paths.normal):
        missing = [message(codes.MISSING_NIC_BANDWIDTH, host=host, device=card)]
        return abstained(job, RULE, said, missing)
    found = JobFinding(
        rule=RULE,
        cause=Cause.NIC_SHARED,
        confidence=Confidence.HIGH if len(paths.normal) >= MIN_PEERS else Confidence.MEDIUM,
        culprits=ranks,
        victims=tuple(sorted({r for row in of_them for r in row.ranks} - set(ranks))),
        place=Place(node=host, port=f"{host}/{card}"),
        evidence=(*said, _slow_said(of_them, paths.usual_gbs)),
        next_actions=(message(codes.EDIT_TOPOLOGY, host=host),),
        measures={"busbw_gbs": paths.busbw_gbs, "usual_gbs": paths.usual_gbs},
    )
    return job_verdict(job, found)


def _seen(host: str, card: str, ranks: tuple[int, ...], n_others: int) -> list[Evidence]:
    return [
        told(codes.NIC_USERS, kind="log", host=host, device=card, ranks=ranks),
        told(codes.NIC_ALONE, kind="log", n_hosts=n_others),
    ]


def _slow_said(rows: Sequence[BandwidthRow], usual_gbs: float) -> Evidence:
    names = [row.comm_label or ", ".join(map(str, row.ranks)) for row in rows]
    busbw_gbs = float(np.median([row.busbw_gbs for row in rows]))
    return told(codes.SLOW_GROUPS, comms=names, busbw_gbs=busbw_gbs, usual_gbs=usual_gbs)
