"""Hardware counters over time and the map from ranks to ports, as rules see them."""

from __future__ import annotations

import msgspec


class CounterSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of one counter on the run's clock; ``values`` are raw, monotone for counters."""

    host: str
    device: str
    counter: str
    unit: str
    times_ns: tuple[int, ...]
    values: tuple[float, ...]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One physical port a rank's traffic leaves by."""

    global_rank: int
    host: str
    device: str
    port: int = 0
    rail: int = -1


class LinkMap(msgspec.Struct, frozen=True, kw_only=True):
    """Which rank uses which port. Without it no rule may name a port."""

    links: tuple[Link, ...] = ()
