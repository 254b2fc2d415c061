"""All rules, in one explicit list, with what each takes."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from comminsight.diagnosis import hang, killed, straggler
from comminsight.model.verdict import Verdict


class Takes(StrEnum):
    """The input of a rule beside the communicators."""

    HANG_EVENT = "hang event"
    MEASURES = "straggler measures and coverage"


class Rule(NamedTuple):
    """``judge`` is called as its own signature says."""

    name: str
    takes: Takes
    judge: Callable[..., Verdict]


RULES: tuple[Rule, ...] = (
    Rule(hang.RULE, Takes.HANG_EVENT, hang.judge_hang),
    Rule(killed.RULE, Takes.HANG_EVENT, killed.judge_killed),
    Rule(straggler.RULE, Takes.MEASURES, straggler.judge_straggler),
)
