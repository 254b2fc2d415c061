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


class RankSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one rank on the clock of the counters, one entry per step in each field.

    ``communication_ns`` is the time in transfers, from the last entry to the end, empty where it
    was not measured.
    """

    global_rank: int
    steps: tuple[int, ...]
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    communication_ns: tuple[int, ...] = ()


class RankGpu(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU of a rank, by the name that its counters have."""

    global_rank: int
    host: str
    device: str


class LinkMap(msgspec.Struct, frozen=True, kw_only=True):
    """Which rank uses which port and which GPU. Without it no rule may name a port.

    ``whole_ranks`` are those of which every port is in ``links``, ``whole_hosts`` (short names)
    those all of whose ranks are; None: all of the job. A port that is not in the map is certainly
    unused only on one of ``whole_hosts``.
    """

    links: tuple[Link, ...] = ()
    gpus: tuple[RankGpu, ...] = ()
    whole_ranks: frozenset[int] | None = None
    whole_hosts: frozenset[str] | None = None
