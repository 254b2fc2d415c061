"""How much of a run nobody can tell apart: time in fan-outs, and ops that were only seen called."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.model.records import is_peerless, is_untimed, n_calls
from comminsight.model.trace import RankTrace


def hidden_ratio(ranks: Sequence[RankTrace]) -> float:
    """The largest share of any rank's time that it spent in P2P without one known partner, waiting
    for nobody knows whom; 0-1."""
    return max((_hidden(rank.ops) for rank in ranks), default=0.0)


def untimed_ratio(ranks: Sequence[RankTrace]) -> float:
    """The largest share of any rank's ops of which only the call was seen; 0-1."""
    return max((_untimed(rank.ops) for rank in ranks), default=0.0)


def _hidden(ops: np.ndarray) -> float:
    own = ops[is_peerless(ops) & (ops["end_ns"] > 0)]
    span_ns = int(ops["end_ns"].max(initial=0)) - int(ops["start_ns"].min(initial=1 << 62))
    spent_ns = int((own["end_ns"] - own["start_ns"]).sum())
    return min(1.0, spent_ns / span_ns) if span_ns > 0 else 0.0


def _untimed(ops: np.ndarray) -> float:
    calls = n_calls(ops)
    return float(calls[is_untimed(ops)].sum() / calls.sum()) if calls.sum() else 0.0
