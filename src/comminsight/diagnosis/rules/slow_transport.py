"""Sockets between nodes that have faster ports: the first question where many nodes are no faster
than one."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.bandwidth import usable
from comminsight.analysis.log_index import events_with
from comminsight.analysis.port_rates import is_up
from comminsight.diagnosis import codes_data as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict, told
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence

RULE = "slow_transport"
SOCKET = "socket"
MAX_REACHED_RATIO = 0.3  # of what one port carries


def slow_transport_rule(job: JobEvidence) -> Iterator[Claim]:
    """SLOW_LINK where NCCL's logs name sockets as the network, an active port carries several times
    the bandwidth that was measured, and no log names another network."""
    used = {str(one.values.get("network", "")).lower(): one for one in _networks(job)}
    if set(used) != {SOCKET}:
        return
    rate_gbs = max(
        (one.rate_gbs for one in job.hosts.ports if one.state and is_up(one)),
        default=0.0,
    )
    across = [row for row in usable(job.bandwidth) if len(set(row.hosts)) != 1]
    best_gbs = max((row.busbw_gbs for row in across), default=0.0)
    if not rate_gbs or not best_gbs or best_gbs > MAX_REACHED_RATIO * rate_gbs:
        return
    line = used[SOCKET]
    found = JobFinding(
        RULE, Cause.SLOW_LINK, Confidence.MEDIUM,
        evidence=(
            told(codes.SOCKETS, kind="log", text=line.text, rate_gbs=rate_gbs, busbw_gbs=best_gbs),
        ),
        next_actions=(message(codes.USE_PORTS),),
        measures={"busbw_gbs": best_gbs, "rate_gbs": rate_gbs},
    )  # fmt: skip
    yield Claim(
        job_verdict(job, found),
        explains=frozenset({Cause.EXPOSED_COMM, Cause.NO_OVERLAP_BY_DEPENDENCY}),
    )


def _networks(job: JobEvidence) -> Iterator[LogEvent]:
    return events_with(job.logs, {LogCode.NCCL_NETWORK})
