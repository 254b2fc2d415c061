"""How the clocks of nodes move against each other, by the ends of the collectives they share.

One offset is taken for a whole run. Where a clock is faster than another, the ends move along a
straight line; what they move in all is an error of that offset, and is in its bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.clock import estimate_clocks, node_ends
from comminsight.analysis.drift_line import MIN_DRIFT_OPS, DriftLine, drift_line
from comminsight.model.trace import RankTrace, RunTrace

MAX_INSTANCES = 4096  # of a node: more would say the same again


@dataclass(frozen=True, slots=True)
class ClockDrift:
    """The clock of ``host`` against that of ``other``, over the ``span_ns`` that was seen;
    ``error_ns`` is the bound that the run states for the node."""

    host: str
    other: str
    line: DriftLine
    span_ns: int
    error_ns: int


def clock_drifts(trace: RunTrace) -> Iterator[ClockDrift]:
    """Of each node that shares enough collectives with the first one; none on one node."""
    boots = list(dict.fromkeys(rank.session.boot_id for rank in trace.ranks))
    if len(boots) < 2:
        return
    longest = max(len(rank.ops) for rank in trace.ranks)
    every = max(1, -(-longest // MAX_INSTANCES))
    clocks = trace.clocks if trace.clocks.offset_ns else estimate_clocks(trace.ranks)
    keys, spans = node_ends(_of(trace.ranks, boots[0]), every=every)
    for boot in boots[1:]:
        other_keys, other_spans = node_ends(_of(trace.ranks, boot), every=every)
        _, here, there = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
        if len(here) < MIN_DRIFT_OPS:
            continue
        at_ns, ends_ns = spans[here, 2], other_spans[there, 2]
        yield ClockDrift(
            host=_host(trace.ranks, boot), other=_host(trace.ranks, boots[0]),
            line=drift_line(at_ns, ends_ns - at_ns), span_ns=int(np.ptp(at_ns)),
            error_ns=clocks.error_ns.get(boot, 0),
        )  # fmt: skip


def _of(ranks: Sequence[RankTrace], boot: str) -> list[RankTrace]:
    return [rank for rank in ranks if rank.session.boot_id == boot]


def _host(ranks: Sequence[RankTrace], boot: str) -> str:
    return next((one.session.host for one in _of(ranks, boot) if one.session.host), boot)
