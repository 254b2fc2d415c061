"""What one rule says of a job, and which other statements it makes consequences of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import NO_TIME, LogTime
from comminsight.model.verdict import Cause, Verdict


@dataclass(frozen=True, slots=True)
class Claim:
    """A verdict with when it began and what follows from it.

    ``explains`` are the causes that are mere consequences where this one holds, of the ranks
    ``explains_ranks``; None: of any. ``began`` decides between two that explain each other.
    """

    verdict: Verdict
    began: LogTime = NO_TIME
    explains: frozenset[Cause] = frozenset()
    explains_ranks: frozenset[int] | None = None

    def accounts_for(self, other: Claim) -> bool:
        """True when what ``other`` says follows from what this says."""
        if other.verdict.cause not in self.explains:
            return False
        ranks = self.explains_ranks
        return ranks is None or ranks.issuperset(other.verdict.culprits)


Rule = Callable[[JobEvidence], Iterable[Claim]]


def is_certainly_before(first: LogTime, second: LogTime) -> bool:
    """True when ``first`` lies before ``second`` by all that their stamps leave open."""
    if first.kind != second.kind or first.error_ns < 0 or second.error_ns < 0:
        return False
    if not (first.ns and second.ns):
        return False
    return first.ns + first.error_ns < second.ns - second.error_ns
