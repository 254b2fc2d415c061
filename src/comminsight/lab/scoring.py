"""Right, abstained or wrong: what a verdict is worth against what was planted, and the table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from comminsight.lab.cases import SILENT, Case
from comminsight.model.verdict import Cause, Verdict

ABSTAINING = frozenset({Cause.NO_VERDICT, Cause.DATA_INCOMPLETE, Cause.JOB_KILLED})
# more ranks than CPUs stand still by turns: that is so, and accuses nobody
CALM = ABSTAINING | {Cause.HEALTHY, Cause.HOST_PAUSE}
CONFIDENCE = 0.95


class Mark(StrEnum):
    """What a run's verdicts are worth. VOID: the fault did not come about, or had no effect on who
    waits, so nothing can be said."""

    RIGHT = "right"
    ABSTAINED = "abstained"
    WRONG = "wrong"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run by one source of evidence (``recording`` or ``dumps``); ``said`` is in words."""

    case: Case
    source: str
    mark: Mark
    said: str


def mark_of(case: Case, verdicts: Sequence[Verdict]) -> Mark:
    """The worth of a report's verdicts, the gravest first.

    Whoever is named and is no part of any right answer is a wrong accusation, in whichever verdict;
    so is a cause that is not among the right ones. Where nobody may be named, silence is right.
    """
    if case.is_silent:
        is_calm = all(one.cause in CALM and not one.culprits for one in verdicts)
        return Mark.RIGHT if is_calm else Mark.WRONG
    allowed = frozenset[int]().union(*(a.must | a.may for a in case.accepted))
    if any(not allowed.issuperset(one.culprits) for one in verdicts):
        return Mark.WRONG
    if not verdicts:
        return Mark.ABSTAINED
    top = verdicts[0]
    if any(one.has(top.cause, frozenset(top.culprits)) for one in case.accepted):
        return Mark.RIGHT
    is_abstaining = top.cause in ABSTAINING and not top.culprits
    return Mark.ABSTAINED if is_abstaining else Mark.WRONG


def said_of(verdicts: Sequence[Verdict]) -> str:
    """Causes, culprits and confidence in one line."""
    words = (
        f"{one.cause.value}{list(one.culprits) or ''} {one.confidence.value}" for one in verdicts
    )
    return "; ".join(words) or "nothing"


def rate_bound(n_hits: int, n_runs: int, confidence: float = CONFIDENCE) -> float:
    """The upper bound of a rate (Clopper and Pearson, one-sided): the largest at which no more than
    ``n_hits`` in ``n_runs`` would not be a surprise; about 3 / n for none. 1.0 of nothing."""
    if n_hits >= n_runs:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        rate = (low + high) / 2
        likely = sum(
            math.comb(n_runs, k) * rate**k * (1 - rate) ** (n_runs - k) for k in range(n_hits + 1)
        )
        low, high = (rate, high) if likely > 1 - confidence else (low, rate)
    return high


def table(outcomes: Iterable[Outcome], source: str) -> str:
    """Counts by kind as a Markdown table, with a last line for all faults together."""
    counts: dict[str, Counter[Mark]] = {}
    for one in outcomes:
        if one.source == source:
            counts.setdefault(one.case.kind, Counter())[one.mark] += 1
    faults = sum((c for kind, c in counts.items() if kind not in SILENT), Counter[Mark]())
    lines = [
        f"| {source} | runs | right | abstained | wrong |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for kind, count in [*counts.items(), ("all faults", faults)]:
        marks = [count[mark] for mark in (Mark.RIGHT, Mark.ABSTAINED, Mark.WRONG)]
        lines.append(f"| {kind} | {' | '.join(map(str, [sum(marks), *marks]))} |")
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome], source: str) -> str:
    """The share of right answers, and the bounds of wrong accusations and false alarms."""
    own = [one for one in outcomes if one.source == source and one.mark is not Mark.VOID]
    faults = [one for one in own if not one.case.is_silent]
    silent = [one for one in own if one.case.is_silent]
    lines = []
    for what, part in (("faults", faults), ("silent", silent)):
        marks = Counter(one.mark for one in part)
        n, n_wrong = len(part), marks[Mark.WRONG]
        if n:
            lines.append(
                f"{source}, {what}: right {marks[Mark.RIGHT]} of {n} "
                f"({100 * marks[Mark.RIGHT] / n:.1f} %), wrong {n_wrong}; "
                f"95 % bound of the rate of wrong ones {100 * rate_bound(n_wrong, n):.1f} %"
            )
    return "\n".join(lines)


def faults_of(outcomes: Iterable[Outcome]) -> str:
    """Every run that is not right, with what repeats it."""
    return "\n".join(
        f"{one.mark.value:9} --kind {one.case.kind} --seed {one.case.seed} ({one.source}): "
        f"planted {list(one.case.planted)}, said {one.said}"
        for one in outcomes
        if one.mark is not Mark.RIGHT
    )
