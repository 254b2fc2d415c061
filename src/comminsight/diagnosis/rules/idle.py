"""A job that a detector takes for hung though nothing is pending on any rank."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.log_index import events_with
from comminsight.diagnosis import codes_calls
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict
from comminsight.model.hang import HangEvent
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "idle"


def idle_rule(job: JobEvidence) -> Iterator[Claim]:
    """HEALTHY_IDLE where somebody says that the job hangs, and the view of every rank shows that
    all it called is over, on all members of each group alike."""
    said = next(_claims(job), None)
    if said is None or job.hang is None or job.doubted or not _is_idle(job.hang):
        return
    told = message(codes_calls.NOTHING_PENDING, n_ranks=job.hang.world_size)
    found = JobFinding(
        RULE, Cause.HEALTHY_IDLE, Confidence.MEDIUM,
        evidence=(Evidence(kind="record", message=told, text=said.text),),
    )  # fmt: skip
    yield Claim(job_verdict(job, found))


def _claims(job: JobEvidence) -> Iterator[LogEvent]:
    return events_with(job.logs, [LogCode.HANG_SUSPECTED])


def _is_idle(event: HangEvent) -> bool:
    """True where every rank is seen, and all of them stand at the same ops, all over."""
    if event.in_flight or len(event.ranks) != event.world_size or not event.progress:
        return False
    if any(state.records_lost for state in event.ranks):
        return False
    last: dict[int, set[tuple[int, int]]] = {}
    for one in event.progress:
        if one.direction == 0:
            last.setdefault(one.comm_id, set()).add((one.last_entered, one.last_done))
    return all(len(own) == 1 and all(a == b for a, b in own) for own in last.values())
