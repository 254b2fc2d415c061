"""A field case: a builder that makes the evidence of its kind of fault, and of its twin.

The twin is the same job without the fault, or with less evidence: nobody may be accused in it.
A case is built in several variants (ranks, groups, sizes, formats), so that a rule that knows only
the example of the thread does not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from comminsight.diagnosis.job import judge_job
from comminsight.errors import InputError
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Verdict
from comminsight.pipeline.diagnose import diagnose

NO_FINDING = frozenset({Cause.HEALTHY, Cause.NO_VERDICT})
# a folder of files, evidence as the readers will give it, or verdicts of a rule with its own input
Evidence = Path | JobEvidence | Sequence[Verdict]


class Grade(StrEnum):
    """How a case was answered."""

    RIGHT = "right"
    ABSTAINED = "abstained"
    WRONG = "wrong"


@dataclass(frozen=True)
class Expected:
    """What must be said: one of ``causes`` first, with exactly these culprits (None: the case is
    not about ranks), the causes ``also`` beside it, and each code of ``told`` somewhere in its
    evidence, missing evidence or actions, each of ``places`` in the chain of the first. No causes:
    nobody may be accused of anything."""

    causes: tuple[Cause, ...] = ()
    culprits: tuple[int, ...] | None = None
    also: tuple[Cause, ...] = ()
    told: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


SILENT = Expected()


@dataclass(frozen=True)
class Scene:
    """The evidence of one variant and of its twin, with what must be said of each."""

    evidence: Evidence
    expected: Expected
    twin: Evidence
    twin_expected: Expected = SILENT


@dataclass(frozen=True)
class FieldCase:
    """``number`` is that of the list; ``build(folder, **variant)`` writes below ``folder``, or
    returns model values."""

    number: int
    title: str
    build: Callable[..., Scene]
    variants: tuple[Mapping[str, Any], ...] = field(default=({},))


@dataclass(frozen=True)
class Answer:
    """A grade with what was said, for people."""

    grade: Grade
    said: str


def judge(evidence: Evidence) -> tuple[Verdict, ...]:
    """The verdicts on the evidence, as a user would get them; none where it is refused."""
    if isinstance(evidence, JobEvidence):
        return judge_job(evidence)
    if isinstance(evidence, Path):
        try:
            return diagnose([evidence]).verdicts
        except InputError:
            return ()
    return tuple(evidence)


def grade(verdicts: Sequence[Verdict], expected: Expected) -> Answer:
    """How far the verdicts are what was expected; any accusation beyond it is wrong."""
    found = [verdict for verdict in verdicts if verdict.cause not in NO_FINDING]
    said = "; ".join(f"{v.cause} {list(v.culprits)} {v.confidence}" for v in verdicts) or "nothing"
    if not found:
        told = {code for verdict in verdicts for code in codes_of(verdict)}
        is_right = not expected.causes and told.issuperset(expected.told)
        return Answer(Grade.RIGHT if is_right else Grade.ABSTAINED, said)
    main, others = found[0], {verdict.cause for verdict in found[1:]}
    is_cause = main.cause in expected.causes
    is_named = expected.culprits is None or main.culprits == tuple(sorted(expected.culprits))
    is_named &= {link.value for link in main.chain}.issuperset(expected.places)
    is_beyond = others - set(expected.also) - set(expected.causes)
    if not (is_cause and is_named) or is_beyond:
        return Answer(Grade.WRONG, said)
    lacking = sorted(
        {cause.value for cause in set(expected.also) - others}
        | (set(expected.told) - {code for verdict in found for code in codes_of(verdict)})
    )
    if lacking:
        return Answer(Grade.ABSTAINED, f"{said}; not told: {', '.join(lacking)}")
    return Answer(Grade.RIGHT, said)


def codes_of(verdict: Verdict) -> set[str]:
    """All codes that a verdict tells in its evidence, missing evidence and actions."""
    evidence = {entry.message.code for entry in verdict.evidence}
    return evidence | {one.code for one in (*verdict.missing, *verdict.next_actions)}


def answers(case: FieldCase, folder: Path) -> list[tuple[str, Answer]]:
    """The answer to every variant and its twin, by name."""
    found = []
    for place, variant in enumerate(case.variants):
        own = folder / f"{case.number:03d}-{place}"
        own.mkdir(parents=True)
        scene = case.build(own, **variant)
        name = ", ".join(f"{key}={value}" for key, value in variant.items())
        found.append((f"fault {name}", grade(judge(scene.evidence), scene.expected)))
        found.append((f"twin {name}", grade(judge(scene.twin), scene.twin_expected)))
    return found
