"""What Ascend's HCCL says of a rank that did not answer: EI0002 in an op, EI0006 in connecting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from comminsight.analysis.log_index import lines_with
from comminsight.analysis.log_ranks import ranks_of
from comminsight.diagnosis import codes_calls as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, abstained, job_verdict, told
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "ascend"
NOTIFY, CONNECT = "EI0002", "EI0006"
Reports = dict[int, set[int]]  # remote rank (-1: not named) -> ranks that wait for it


def ascend_rule(job: JobEvidence) -> Iterator[Claim]:
    """The one rank that others wait for and that reports nothing, with low confidence: its link may
    be broken as well. Nobody where it is not named, reports too, or is not the only one whom
    anybody waits for: a log that is not at hand is no silence."""
    told_by = _reports(job)
    for code, cause in ((NOTIFY, Cause.RANK_NOT_ENTERED), (CONNECT, Cause.INIT_STUCK)):
        if code not in told_by:
            continue
        waiting, first = told_by[code]
        evidence = tuple(_evidence(code, waiting, first))
        reporting = {rank for ranks in waiting.values() for rank in ranks}
        silent = tuple(sorted(set(waiting) - reporting - {-1}))
        missing = (message(codes.MISSING_LINK_STATE, ranks=list(silent)),)
        actions = (message(codes.READ_FIRST_NOTIFY),)
        is_alone = len(silent) == 1 and set(waiting) == set(silent) and -1 not in reporting
        is_known = is_alone and _are_global(job, code, silent[0])
        culprits = silent if is_known else ()
        if culprits or cause is Cause.INIT_STUCK:
            found = JobFinding(
                RULE, cause, Confidence.LOW, culprits=culprits, victims=_known(reporting),
                evidence=evidence, missing=missing, next_actions=actions,
            )  # fmt: skip
            yield Claim(job_verdict(job, found))
        else:
            yield Claim(abstained(job, RULE, evidence, missing, actions))
        return  # who waits in an op did so before others, that wait behind it, connect


def _are_global(job: JobEvidence, code: str, remote: int) -> bool:
    """True where the lines number ranks as the job does: each rank calls itself in its group as in
    the job, up to one behind the remote one."""
    ranks = ranks_of(job.logs, job.world_size)
    lines = [
        (ranks.rank_of(log, event), event.comm_rank)
        for log, event in lines_with(job.logs, LogCode.ASCEND_ERROR)
        if event.values.get("error_name") == code
    ]
    # groups list their ranks ascending: up to one that has one number, both numbers are the same
    return all(own == there for own, there in lines) and remote <= max(own for own, _ in lines)


def _known(ranks: set[int]) -> tuple[int, ...]:
    return tuple(sorted(ranks - {-1}))


def _reports(job: JobEvidence) -> dict[str, tuple[Reports, LogEvent]]:
    """By code who waits for whom, and the first line."""
    ranks = ranks_of(job.logs, job.world_size)
    found: dict[str, tuple[Reports, LogEvent]] = {}
    for log, event in lines_with(job.logs, LogCode.ASCEND_ERROR):
        code = event.values.get("error_name")
        if not isinstance(code, str):
            continue
        waiting, _ = found.setdefault(code, (defaultdict(set), event))
        remote = event.values.get("remote_rank", -1)
        waiting[remote if isinstance(remote, int) else -1].add(ranks.rank_of(log, event))
    return found


def _evidence(code: str, waiting: Mapping[int, set[int]], first: LogEvent) -> Iterator[Evidence]:
    said = codes.NOTIFY_TIMEOUT if code == NOTIFY else codes.CONNECT_TIMEOUT
    for remote, ranks in sorted(waiting.items()):
        yield told(
            said, kind="log", text=first.text, ranks=sorted(ranks - {-1}), remote_rank=remote
        )
