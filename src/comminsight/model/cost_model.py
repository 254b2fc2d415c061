"""What a collective costs by its size, as fitted: rows for people and for other programs."""

from __future__ import annotations

from enum import StrEnum

import msgspec

COST_SCHEMA_VERSION = "1.0"


class GroupTier(StrEnum):
    """Where the members of a group stand."""

    NODE = "node"  # all on one host
    RAIL = "rail"  # one on each of several hosts
    ACROSS = "across"  # several on each of several hosts
    UNKNOWN = ""


class NoFit(StrEnum):
    """Why there is no model of a population."""

    FEW_SIZES = "few_sizes"
    NARROW = "narrow"  # sizes span too little to tell startup and rate apart


class CostFit(msgspec.Struct, frozen=True, kw_only=True):
    """``time = startup_ns + bytes / rate_gbs`` of one op, tier, group size, algorithm and protocol,
    with 95 % intervals; GB/s are 1e9 bytes of payload a second (not bus bandwidth).

    ``half_bytes`` is the size at which the startup is half of the time. ``low_ratio`` and
    ``high_ratio`` hold the middle 90 % of measured over predicted times. With ``no_fit`` there is
    no model and numbers are 0. ``rate_high_gbs`` is infinite where times hardly grow with the size:
    no rate can be told.
    """

    op: int
    tier: GroupTier
    n_ranks: int
    algorithm: str = ""
    protocol: str = ""
    run: str = ""
    n_rows: int = 0
    smallest_bytes: int = 0
    largest_bytes: int = 0
    no_fit: NoFit | None = None
    startup_ns: float = 0.0
    startup_low_ns: float = 0.0
    startup_high_ns: float = 0.0
    rate_gbs: float = 0.0
    rate_low_gbs: float = 0.0
    rate_high_gbs: float = 0.0
    half_bytes: float = 0.0
    low_ratio: float = 0.0
    high_ratio: float = 0.0


class CrossoverRow(msgspec.Struct, frozen=True, kw_only=True):
    """Below ``size_bytes`` (95 % between low and high) ``below`` is faster, above it ``above``:
    algorithm and protocol, as ``RING/LL``."""

    op: int
    tier: GroupTier
    n_ranks: int
    below: str
    above: str
    size_bytes: float
    low_bytes: float
    high_bytes: float


class CostDrift(msgspec.Struct, frozen=True, kw_only=True):
    """One population in two runs whose intervals do not meet: what became worse."""

    op: int
    tier: GroupTier
    n_ranks: int
    algorithm: str
    protocol: str
    before: str  # runs
    after: str
    is_startup_worse: bool
    is_rate_worse: bool


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    """The models of what was given, where they cross, and what became worse from run to run."""

    schema_version: str = COST_SCHEMA_VERSION
    fits: tuple[CostFit, ...]
    crossovers: tuple[CrossoverRow, ...] = ()
    drifts: tuple[CostDrift, ...] = ()
