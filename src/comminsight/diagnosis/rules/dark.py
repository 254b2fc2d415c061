"""Hand-written communication, of which no library tells: its kernels and its share of the time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from comminsight.analysis.exposure import exposures
from comminsight.analysis.intervals import length_ns
from comminsight.analysis.stamp_quality import communication_of
from comminsight.diagnosis import codes_data as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import abstained, told
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Evidence, Message, Verdict

RULE = "dark"
MIN_DARK_RATIO = 0.05  # of the time of all ranks
MAX_NAMES = 4
ON_SPEED = frozenset({
    Cause.EXPOSED_COMM, Cause.NO_OVERLAP_BY_DEPENDENCY, Cause.SMALL_MESSAGES, Cause.LOAD_IMBALANCE,
    Cause.COMPUTE_STRAGGLER, Cause.INPUT_STRAGGLER, Cause.SLOW_LINK,
})  # fmt: skip


def dark_rule(job: JobEvidence) -> Iterator[Claim]:
    """NO_VERDICT that names the kernels where hand-written communication takes a good part of the
    time: no record of collectives speaks of it."""
    if (found := _dark(job)) is not None:
        said, missing = found
        yield Claim(abstained(job, RULE, [said], (missing,)))


def with_dark(verdicts: Iterable[Verdict], job: JobEvidence) -> list[Verdict]:
    """The findings; those on speed say what communication they do not know of."""
    known = list(verdicts)
    found = _dark(job) if any(one.cause in ON_SPEED for one in known) else None
    if found is None:
        return known
    said, missing = found
    return [
        replace(one, evidence=(*one.evidence, said), missing=(*one.missing, missing))
        if one.cause in ON_SPEED
        else one
        for one in known
    ]


def _dark(job: JobEvidence) -> tuple[Evidence, Message] | None:
    """What is told of it and what is missing; None where it is too little to matter."""
    own = [one for one in communication_of(job.activities) if not one.is_library]
    if not own:
        return None
    total_ns = sum(one.span_ns for one in exposures(job.activities))
    dark_ns = sum(length_ns(one.communication) for one in exposures(own))
    if not total_ns or dark_ns < MIN_DARK_RATIO * total_ns:
        return None
    names = sorted({one.name for one in own})[:MAX_NAMES]
    said = told(codes.DARK, names=names, ratio=dark_ns / total_ns)
    return said, message(codes.MISSING_NAMES, names=names)
