"""All rules over all evidence of one job: the verdict to act on first, then what stands beside it.

A statement that follows from another one is no finding of its own: it becomes evidence of that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from comminsight.diagnosis import codes, codes_logs
from comminsight.diagnosis.claim import Claim, is_certainly_before
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_coverage import job_coverage
from comminsight.diagnosis.log_origin import log_origin
from comminsight.diagnosis.logged_ends import echo_evidence
from comminsight.diagnosis.rules import RULES
from comminsight.diagnosis.rules.dark import with_dark
from comminsight.diagnosis.same_death import told_once
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import UNREMARKABLE, Cause, Confidence, Evidence, Verdict

RULE = "job"
_Entry = TypeVar("_Entry")


def judge_job(job: JobEvidence) -> tuple[Verdict, ...]:
    """The findings, the one to act on first; one verdict that abstains where there is none."""
    claims = [claim for rule in RULES for claim in rule(job)]
    found = [claim for claim in claims if claim.verdict.cause not in UNREMARKABLE]
    if not found:
        silent = [claim.verdict for claim in claims] or [_nothing_found(job)]
        return (_complete(_joined(silent), job),)
    findings = with_dark(told_once(without_consequences(found)), job)
    return tuple(_complete(verdict, job) for verdict in findings)


def _joined(silent: Sequence[Verdict]) -> Verdict:
    """The first of those that name nobody, with what the others of its kind say beside it."""
    first = silent[0]
    alike = [verdict for verdict in silent if verdict.cause is first.cause]
    return replace(
        first,
        evidence=_each_once(entry for verdict in alike for entry in verdict.evidence),
        missing=_each_once(said for verdict in alike for said in verdict.missing),
        next_actions=_each_once(said for verdict in alike for said in verdict.next_actions),
    )


def _each_once(entries: Iterable[_Entry]) -> tuple[_Entry, ...]:
    found: list[_Entry] = []
    for entry in entries:
        if entry not in found:
            found.append(entry)
    return tuple(found)


def without_consequences(claims: Sequence[Claim]) -> list[Verdict]:
    """The verdicts of those claims that no other accounts for, in their order, each with those it
    does account for as evidence. Of two that account for each other the later one is dropped: by
    their times where these tell, else by their order."""
    places = range(len(claims))
    origins = {
        place: next((k for k in places if k != place and _is_behind(place, k, claims)), None)
        for place in places
    }
    dropped = [place for place in places if origins[place] is not None]
    kept = [claims[place] for place in places if origins[place] is None]
    return [_with_consequences(claim, [claims[place] for place in dropped]) for claim in kept]


def _is_behind(place: int, other: int, claims: Sequence[Claim]) -> bool:
    """True when the claim at ``place`` follows from that at ``other``."""
    own, cause = claims[place], claims[other]
    if not cause.accounts_for(own):
        return False
    if not own.accounts_for(cause):
        return True
    if is_certainly_before(own.began, cause.began):
        return False
    return is_certainly_before(cause.began, own.began) or other < place


def _with_consequences(claim: Claim, dropped: Sequence[Claim]) -> Verdict:
    said = tuple(_explained(other.verdict) for other in dropped if claim.accounts_for(other))
    verdict = claim.verdict
    return replace(verdict, evidence=(*verdict.evidence, *said)) if said else verdict


def _explained(verdict: Verdict) -> Evidence:
    said = message(codes.EXPLAINS_CAUSE, cause=verdict.cause.value)
    if verdict.culprits:
        said = message(codes.EXPLAINS, cause=verdict.cause.value, ranks=list(verdict.culprits))
    return Evidence(kind="verdict", message=said)


def _nothing_found(job: JobEvidence) -> Verdict:
    """The verdict of a job of which nothing that was given tells a fault, or only who waited."""
    echoes = tuple(echo_evidence(log_origin(job))) if job.logs else ()
    missing = codes_logs.MISSING_FIRST_SILENT if echoes else codes.MISSING_SIGNS
    return Verdict(
        rule=RULE,
        cause=Cause.NO_VERDICT,
        confidence=Confidence.NONE,
        coverage=job_coverage(job),
        evidence=echoes,
        missing=(message(missing),),
        next_actions=(message(codes.COLLECT_EVIDENCE),),
    )


def _complete(verdict: Verdict, job: JobEvidence) -> Verdict:
    """With what the readers know to be missing, and the files that told nothing."""
    unread = [
        message(codes.MISSING_FILE, source=one.file, reason=one.reason.code) for one in job.unread
    ]
    return replace(verdict, missing=(*verdict.missing, *job.missing, *unread))
