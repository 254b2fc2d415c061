"""Communication that always begins when something else ends, although they could overlap.

One class after compute, or two classes on different links by turns. Whatever ran beside the other
even once shows that nothing orders them.
"""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.succession import COMPUTE, Succession, successions
from comminsight.diagnosis import codes_data as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict, told
from comminsight.diagnosis.rules.exposure import exposure_rule
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence

RULE = "no_overlap"
MIN_REPEATS = 5
MIN_RATIO = 0.95


def no_overlap_rule(job: JobEvidence) -> Iterator[Claim]:
    """NO_OVERLAP_BY_DEPENDENCY for each class of communication that always waits for the end of
    compute or of another class, where communication is exposed; EXPOSED_COMM where two classes on
    different links share one stream, which is the dependency."""
    if not any(True for _ in exposure_rule(job)):
        return
    named: set[str] = set()
    for one in successions(job.activities):
        if one.after in named or not _is_strict(one):
            continue
        named.add(one.after)
        yield _claim(job, one)


def _is_strict(one: Succession) -> bool:
    if one.n < MIN_REPEATS or one.n_beside or one.n_right_after < MIN_RATIO * one.n:
        return False
    return one.before == COMPUTE or ("" not in one.links and one.links[0] != one.links[1])


def _claim(job: JobEvidence, one: Succession) -> Claim:
    is_stream = one.before != COMPUTE and one.is_one_stream
    evidence = [
        told(codes.FOLLOWS, after=one.after, before=one.before, n_after=one.n_right_after, n=one.n)
    ]
    if is_stream:
        evidence.append(told(codes.ONE_STREAM, first=one.before, second=one.after))
    action = (
        message(codes.TWO_STREAMS, first=one.before, second=one.after)
        if is_stream
        else message(codes.FIND_DEPENDENCY, after=one.after, before=one.before)
    )
    cause = Cause.EXPOSED_COMM if is_stream else Cause.NO_OVERLAP_BY_DEPENDENCY
    found = JobFinding(
        RULE, cause, Confidence.MEDIUM, evidence=tuple(evidence), next_actions=(action,)
    )
    return Claim(job_verdict(job, found))
