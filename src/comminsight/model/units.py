"""Two instants that must not be mixed, and the only conversions from and to other units.

Everything inside counts integer nanoseconds. ``LocalNs`` is an instant of one node's
CLOCK_MONOTONIC; ``AlignedNs`` is the same instant on the run's common clock. Only
``analysis.clock`` turns the first into the second, so mypy rejects a subtraction across nodes
that forgot to.
"""

from __future__ import annotations

from typing import NewType

LocalNs = NewType("LocalNs", int)
AlignedNs = NewType("AlignedNs", int)

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def ms(duration_ns: float) -> float:
    """Milliseconds, for screens and settings text only."""
    return duration_ns / NS_PER_MS


def seconds(duration_ns: float) -> float:
    """Seconds, for screens and settings text only."""
    return duration_ns / NS_PER_S


def ns_from_seconds(duration_s: float) -> int:
    """Whole nanoseconds from a setting given in seconds."""
    return round(duration_s * NS_PER_S)
