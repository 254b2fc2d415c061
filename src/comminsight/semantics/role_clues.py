"""Clues for roles: what was seen, for which role it speaks, and how their sum becomes a role.

The role with the largest sum of weights wins; its lead over the second gives the confidence,
``1 - exp(-0.7 lead)``. Below ``MIN_CONFIDENCE`` the role is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from comminsight.model.ops import CommRole

MIN_CONFIDENCE = 0.5
_LEAD_WEIGHT = 0.7


class Clue(NamedTuple):
    """What speaks for (or, with a negative weight, against) a role."""

    role: CommRole
    weight: float
    code: str


class RoleGuess(NamedTuple):
    """A role with its confidence in 0..1 and the codes of what spoke for it, strongest first."""

    role: CommRole
    confidence: float
    evidence: tuple[str, ...]


NO_GUESS = RoleGuess(CommRole.UNKNOWN, 0.0, ())


def guess(clues: Iterable[Clue]) -> RoleGuess:
    """The role that the clues speak for; UNKNOWN, with the confidence it would have had, where
    they do not single one out."""
    own = tuple(clues)
    sums: dict[CommRole, float] = {}
    for clue in own:
        sums[clue.role] = sums.get(clue.role, 0.0) + clue.weight
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0].value))
    if not ranked or ranked[0][1] <= 0:
        return NO_GUESS
    lead = ranked[0][1] - max(ranked[1][1] if len(ranked) > 1 else 0.0, 0.0)
    confidence = round(1 - math.exp(-_LEAD_WEIGHT * lead), 3)
    codes = sorted((c for c in own if c.role is ranked[0][0] and c.weight > 0), key=_by_weight)
    evidence = tuple(dict.fromkeys(clue.code for clue in codes))
    role = ranked[0][0] if confidence >= MIN_CONFIDENCE else CommRole.UNKNOWN
    return RoleGuess(role, confidence, evidence)


def _by_weight(clue: Clue) -> tuple[float, str]:
    return -clue.weight, clue.code
