"""Hand-written communication, of which no library tells: its kernels and its share of the time."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.exposure import exposures
from comminsight.analysis.intervals import length_ns
from comminsight.analysis.stamp_quality import communication_of
from comminsight.diagnosis import codes_data as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import abstained, told
from comminsight.model.job_evidence import JobEvidence

RULE = "dark"
MIN_DARK_RATIO = 0.05  # of the time of all ranks
MAX_NAMES = 4


def dark_rule(job: JobEvidence) -> Iterator[Claim]:
    """NO_VERDICT that names the kernels where hand-written communication takes a good part of the
    time: no record of collectives speaks of it."""
    own = [one for one in communication_of(job.activities) if not one.is_library]
    if not own:
        return
    total_ns = sum(one.span_ns for one in exposures(job.activities))
    dark_ns = sum(length_ns(one.communication) for one in exposures(own))
    if total_ns and dark_ns >= MIN_DARK_RATIO * total_ns:
        names = sorted({one.name for one in own})[:MAX_NAMES]
        said = told(codes.DARK, names=names, ratio=dark_ns / total_ns)
        missing = (message(codes.MISSING_NAMES, names=names),)
        yield Claim(abstained(job, RULE, [said], missing))
