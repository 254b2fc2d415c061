"""A GPU whose clock fell, or runs below those of its peers: a gauge, not a counter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

import numpy as np

from comminsight.analysis.changepoint import find_shift
from comminsight.analysis.log_ranks import short_host
from comminsight.model.counters import CounterSeries

CLOCKS = frozenset({"sm_clock_mhz", "graphics_clock_mhz"})
LOWER_RATIO = 0.95  # of what it was, or of its peers
MIN_PEERS = 3
MAX_SAMPLES = 400  # a shift is sought among as many, thinned evenly


@dataclass(frozen=True, slots=True)
class LowerClock:
    """``value`` is its median since ``since_ns`` (0: all the time), ``usual`` what it was before,
    or the median of its peers where it never was higher."""

    host: str
    device: str
    counter: str
    value: float
    usual: float
    since_ns: int = 0


def lower_clock(series: Iterable[CounterSeries], host: str, device: str) -> LowerClock | None:
    """Of this GPU; None where its clock is as it was and as that of its peers."""
    clocks = [one for one in series if one.counter in CLOCKS and all(map(isfinite, one.values))]
    clocks = [one for one in clocks if one.values]
    for own in clocks:
        if (short_host(own.host), own.device) == (short_host(host), device):
            peers = [o for o in clocks if o is not own and o.counter == own.counter]
            if (found := _fallen(own) or _below(own, peers)) is not None:
                return found
    return None


def _fallen(own: CounterSeries) -> LowerClock | None:
    """Lower from some time on, for good."""
    thin = max(1, len(own.values) // MAX_SAMPLES)
    values, times = np.array(own.values[::thin]), own.times_ns[::thin]
    shift = find_shift(values)
    if shift is None or shift.after > LOWER_RATIO * shift.before:
        return None
    return LowerClock(
        short_host(own.host), own.device, own.counter, shift.after, shift.before, times[shift.onset]
    )


def _below(own: CounterSeries, peers: list[CounterSeries]) -> LowerClock | None:
    """Lower than the clocks of at least three peers, all the time."""
    if len(peers) < MIN_PEERS:
        return None
    value = float(np.median(own.values))
    usual = float(np.median([np.median(one.values) for one in peers]))
    if value > LOWER_RATIO * usual:
        return None
    return LowerClock(short_host(own.host), own.device, own.counter, value, usual)
