"""Which process failed first: what came after it is its consequence.

A launcher that loses one rank ends all others, and their peers fail in the op that they were in.
Only the first rank that failed by itself is an origin: not one that was asked to end, not one
whose own op had failed or that gave up waiting in one, and nobody when several ended alike at once.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from comminsight.model.manifest import ProcessEnd

# deaths closer together than this are one event, as when a launcher kills its children
TOGETHER_NS = 1_000_000_000

ASKED_TO_END = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
CRASHES = frozenset(
    {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
)  # a watchdog that gives up waiting aborts, or exits with a code


@dataclass(frozen=True, slots=True)
class Fate:
    """How one process ended: ``at_ns`` is comparable over nodes as far as their clocks agree;
    ``is_waiting`` in an op then; ``has_broken`` an op of its own before."""

    end: ProcessEnd
    at_ns: int
    is_waiting: bool
    has_broken: bool

    @property
    def is_failure(self) -> bool:
        """True unless it ended with 0."""
        return (self.end.exit_code, self.end.exit_signal) != (0, 0)

    @property
    def is_victim(self) -> bool:
        """True when it may have ended because of others: an op of its own had failed, or it was
        waiting in one and was not brought down by a crash."""
        return self.has_broken or (self.is_waiting and self.end.exit_signal not in CRASHES)


def first_failure(fates: Sequence[Fate]) -> Fate | None:
    """The one that everything else followed from; None when no single one can be told."""
    failed = sorted((fate for fate in fates if fate.is_failure), key=lambda fate: fate.at_ns)
    if not failed or len(fates) < 2:
        return None
    first = failed[0]
    is_unsaid = first.end.exit_signal in {-1, *ASKED_TO_END}
    if is_unsaid or first.is_victim or any(_is_alike(first, other) for other in failed[1:]):
        return None
    return first


def _is_alike(first: Fate, other: Fate) -> bool:
    """True when ``other`` ended at once and by what ended ``first``: the same signal, or the same
    exit code though nothing that it was in had failed."""
    is_same = (first.end.exit_code, first.end.exit_signal) == (
        other.end.exit_code, other.end.exit_signal,
    )  # fmt: skip
    is_at_once = other.at_ns - first.at_ns <= TOGETHER_NS
    return is_at_once and is_same and (first.end.exit_signal > 0 or not other.is_victim)
