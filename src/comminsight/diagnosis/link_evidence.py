"""What the rules on links and ports share: what follows from a path that gave way, and counters."""

from __future__ import annotations

from comminsight.analysis.counter_rise import CounterRise
from comminsight.diagnosis import codes_link
from comminsight.diagnosis.job_finding import told
from comminsight.model.verdict import Cause, Evidence

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


def rise_said(rise: CounterRise) -> Evidence:
    """The sentence on a counter that rose more than its peers."""
    return told(
        codes_link.COUNTER_ROSE, host=rise.host, device=rise.device, counter=rise.counter,
        n=rise.n, usual=rise.usual,
    )  # fmt: skip
