"""How the templates of a run were chosen, and whether the winner's anchor holds on the data."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.verdict import Message
from comminsight.model.views import TemplateScore


class AnchorRule(StrEnum):
    """What a global anchor must satisfy, in the order in which it is checked."""

    SAME_MEANING = "same_meaning"  # one role and op on all ranks
    STABLE_PLACE = "stable_place"  # as far from the first or from the last op in every step
    ADVANCES_EQUALLY = "advances_equally"  # match_seq: the same ops of it on all ranks


class Outcome(StrEnum):
    """Of a check; ``UNKNOWN`` where there is too little to check it on."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"


class AnchorCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One rule on the data; ``ranks`` are those at fault (global ranks, ascending)."""

    rule: AnchorRule
    outcome: Outcome
    evidence: Message
    ranks: tuple[int, ...] = ()


class TemplateChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A template with the ranks it won on, "" for those without one. ``reasons`` are the catalogue
    codes of why sessions were closed."""

    template: str
    version: int
    file_version: int
    ranks: tuple[int, ...]
    n_steps: int
    reasons: tuple[str, ...] = ()


class TemplateView(msgspec.Struct, frozen=True, kw_only=True):
    """Choices of all ranks, the score table of one (``global_rank``), and the checks of the
    template that won on most ranks (``checked``, "" when none did)."""

    schema_version: str
    run_id: str
    global_rank: int
    choices: tuple[TemplateChoice, ...]
    scores: tuple[TemplateScore, ...]
    checked: str = ""
    anchor: str = ""  # the anchor in words
    checks: tuple[AnchorCheck, ...] = ()
