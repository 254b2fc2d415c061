"""What the rules on links and ports share: what follows from a path that gave way, and counters."""

from __future__ import annotations

from comminsight.analysis.counter_rise import CounterRise
from comminsight.analysis.placement import is_whole_at
from comminsight.diagnosis import codes_link
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import told
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Evidence, Message

# what ranks report, or look like, where the path between them gave way
CONSEQUENCES = frozenset(
    {
        Cause.PEER_UNREACHABLE,
        Cause.RANK_DEAD,
        Cause.RANK_NOT_ENTERED,
        Cause.ALL_PRESENT_STUCK,
        Cause.INIT_STUCK,
    }
)


def map_missing(job: JobEvidence, host: str) -> list[Message]:
    """What is missing of the map of links to know all ranks that send by a port of the host."""
    if is_whole_at(job.links, host):
        return []
    if job.links is None:
        return [message(codes_link.MISSING_LINK_MAP)]
    return [message(codes_link.MISSING_WHOLE_MAP, host=host)]


def rise_said(rise: CounterRise) -> Evidence:
    """The sentence on a counter that rose more than its peers."""
    return told(
        codes_link.COUNTER_ROSE, host=rise.host, device=rise.device, counter=rise.counter,
        n=rise.n, usual=rise.usual,
    )  # fmt: skip
