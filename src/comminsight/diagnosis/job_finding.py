"""What a rule over a job's evidence found, and the verdict with coverage and chain made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from comminsight.diagnosis.chain import UNKNOWN
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_coverage import job_coverage
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import (
    Cause,
    ChainLevel,
    ChainLink,
    Confidence,
    Evidence,
    Message,
    MessageParam,
    OpRef,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where it is, as far as it is known: names for the chain."""

    node: str = ""
    port: str = ""
    communicator: str = ""


@dataclass(frozen=True, slots=True)
class JobFinding:
    """What a rule over one job found; see ``Verdict`` for the fields."""

    rule: str
    cause: Cause
    confidence: Confidence
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    place: Place = Place()
    first_bad_op: OpRef | None = None
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Message, ...] = ()
    next_actions: tuple[Message, ...] = ()
    measures: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[int, int] = (-1, -1)


def told(code: str, *, kind: str = "measure", text: str = "", **params: MessageParam) -> Evidence:
    """Evidence that says one sentence, with the line it rests on."""
    return Evidence(kind=kind, message=message(code, **params), text=text)


def job_verdict(job: JobEvidence, found: JobFinding) -> Verdict:
    """The verdict with a whole chain: a level that nothing names is unknown."""
    first_step, last_step = found.steps
    return Verdict(
        rule=found.rule,
        cause=found.cause,
        confidence=found.confidence,
        coverage=job_coverage(job),
        culprits=found.culprits,
        victims=found.victims,
        first_bad_op=found.first_bad_op,
        first_step=first_step,
        last_step=last_step,
        measures=dict(found.measures),
        chain=_chain(job, found),
        evidence=found.evidence,
        missing=found.missing,
        next_actions=found.next_actions,
    )


def abstained(
    job: JobEvidence,
    rule: str,
    evidence: Iterable[Evidence] = (),
    missing: Iterable[Message] = (),
    next_actions: Iterable[Message] = (),
) -> Verdict:
    """What was seen, and what would decide it."""
    found = JobFinding(
        rule, Cause.NO_VERDICT, Confidence.NONE,
        evidence=tuple(evidence), missing=tuple(missing), next_actions=tuple(next_actions),
    )  # fmt: skip
    return job_verdict(job, found)


def _chain(job: JobEvidence, found: JobFinding) -> tuple[ChainLink, ...]:
    ranks = ", ".join(map(str, found.culprits))
    n_ranks = job_coverage(job).ranks_expected
    step = str(found.steps[0]) if found.steps[0] >= 0 else ""
    values = (
        (ChainLevel.JOB, f"{n_ranks} ranks" if n_ranks else ""),
        (ChainLevel.ROLE, ""),
        (ChainLevel.STEP, step),
        (ChainLevel.COMMUNICATOR, found.place.communicator),
        (ChainLevel.OP, found.first_bad_op.op if found.first_bad_op is not None else ""),
        (ChainLevel.RANK, ranks),
        (ChainLevel.NODE, found.place.node),
        (ChainLevel.PORT, found.place.port),
    )
    return tuple(ChainLink(level, value or UNKNOWN) for level, value in values)
