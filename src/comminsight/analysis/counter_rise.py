"""Counters that rose more than those of their peers, over the time that they were sampled.

Counters only grow; one that is smaller than before was reset, or ran over the end of its 32 bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.log_ranks import short_host
from comminsight.model.counters import CounterSeries

WORD = float(1 << 32)
NEAR_WRAP = 0.9  # of the word, above which a smaller value is a run over rather than a reset
LARGEST = 1e30  # far above 64 bits
MIN_PEERS = 3
MIN_RISE = 10.0
PEER_FACTOR = 10.0


@dataclass(frozen=True, slots=True)
class CounterRise:
    """``n`` is by how much it rose in all, ``usual`` the median of the same counter elsewhere."""

    host: str
    device: str
    counter: str
    n: float
    usual: float


def increments(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """By how much the counter rose from each sample to the next, ``(n - 1,)`` float64. A sample
    that is no number reads as the one before it."""
    raw = _known(np.asarray(values, float))
    grown = np.diff(raw)
    before, after = raw[:-1], raw[1:]
    is_wrapped = (grown < 0) & (before >= NEAR_WRAP * WORD) & (before < WORD)
    risen: np.ndarray = np.where(grown >= 0, grown, np.where(is_wrapped, grown + WORD, after))
    return risen


def _known(raw: np.ndarray) -> np.ndarray:
    is_number = np.abs(raw) < LARGEST  # false for no number too
    last = np.maximum.accumulate(np.where(is_number, np.arange(len(raw)), -1))
    known: np.ndarray = np.where(last >= 0, raw[last], raw[is_number][:1].sum())
    return known


def unusual_rises(series: Iterable[CounterSeries], counters: Collection[str]) -> list[CounterRise]:
    """The ports on which one of ``counters`` rose ten times as much as on its peers, of which
    there must be at least three."""
    totals: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for one in series:
        if one.counter in counters and len(one.values) > 1:
            port = short_host(one.host), one.device
            totals[one.counter][port] = float(increments(one.values).sum())
    found = []
    for counter, by_port in sorted(totals.items()):
        for (host, device), n in sorted(by_port.items()):
            others = [value for port, value in by_port.items() if port != (host, device)]
            usual = float(np.median(others)) if len(others) >= MIN_PEERS else np.inf
            if n >= MIN_RISE and n > PEER_FACTOR * usual:
                found.append(CounterRise(host, device, counter, n, usual))
    return found


def still_counters(
    series: Iterable[CounterSeries], counters: Collection[str]
) -> tuple[list[str], int]:
    """Those of ``counters`` that rose nowhere, and the number of ports on which they were
    sampled."""
    risen, seen = set(), defaultdict(set)
    for one in series:
        if one.counter in counters and len(one.values) > 1:
            seen[one.counter].add((one.host, one.device))
            if increments(one.values).sum() > 0:
                risen.add(one.counter)
    still = sorted(seen.keys() - risen)
    return still, len(set().union(*(seen[name] for name in still)))
