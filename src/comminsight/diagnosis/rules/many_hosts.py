"""Hosts that are fast two by two and slow together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from comminsight.analysis.bandwidth import usable
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, job_verdict, told
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Message

RULE = "many_hosts"
SLOW_RATIO = 0.5  # of the slowest pair
ALIKE_RATIO = 0.8  # of the fastest pair: all pairs are as good as each other
Pairs = dict[tuple[str, ...], float]


def many_hosts_rule(job: JobEvidence) -> Iterator[Claim]:
    """SLOW_LINK between hosts that were measured two by two, each of them, and were fast so."""
    rows = usable(job.bandwidth)
    for row in rows:
        if len(row.hosts) < 3:
            continue
        pairs = _pairs(rows, row)
        covered = {host for pair in pairs for host in pair}
        if covered != set(row.hosts) or min(pairs.values()) < ALIKE_RATIO * max(pairs.values()):
            continue
        if row.busbw_gbs < SLOW_RATIO * min(pairs.values()):
            yield Claim(job_verdict(job, _finding(row, pairs)))
            return


def _pairs(rows: Sequence[BandwidthRow], of: BandwidthRow) -> Pairs:
    """Bandwidth of each two of the hosts, of the same op and size."""
    return {
        tuple(sorted(row.hosts)): row.busbw_gbs
        for row in rows
        if len(row.hosts) == 2
        and set(row.hosts) <= set(of.hosts)
        and (row.op, row.size_bytes) == (of.op, of.size_bytes)
    }


def _finding(row: BandwidthRow, pairs: Pairs) -> JobFinding:
    ring = [*zip(row.hosts, (*row.hosts[1:], row.hosts[0]), strict=True)]
    said = told(
        codes.ONLY_FROM_HOSTS, n_hosts=len(row.hosts), busbw_gbs=row.busbw_gbs,
        pair_gbs=min(pairs.values()), edges=[f"{a} - {b}" for a, b in ring],
    )  # fmt: skip
    return JobFinding(
        rule=RULE,
        cause=Cause.SLOW_LINK,
        confidence=Confidence.LOW,
        victims=row.ranks,
        place=Place(node=", ".join(row.hosts)),
        evidence=(said,),
        missing=tuple(_missing(row, pairs)),
        next_actions=(message(codes.TRACE_RING),),
        measures={"busbw_gbs": row.busbw_gbs, "usual_gbs": min(pairs.values())},
    )


def _missing(row: BandwidthRow, pairs: Pairs) -> Iterator[Message]:
    yield message(codes.MISSING_LINK_CAUSE)
    unmeasured = [pair for pair in combinations(sorted(row.hosts), 2) if pair not in pairs]
    if unmeasured:
        names = [f"{a} - {b}" for a, b in unmeasured]
        yield message(codes.MISSING_PAIRS, pairs=names)
