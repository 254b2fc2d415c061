"""What schedulers and launchers say of the end of a job where nothing else does."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.log_index import lines_of_writers
from comminsight.analysis.log_ranks import short_host
from comminsight.analysis.scheduler_ends import (
    ALL_CODES,
    SchedulerEnds,
    ToldEnd,
    scheduler_ends,
    told_ends,
)
from comminsight.diagnosis import codes_ends as ends
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.death_actions import Death, death_actions
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict
from comminsight.diagnosis.log_origin import LogOrigin, log_origin
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence, Evidence, Message

RULE = "scheduler_ends"
MAX_TOLD = 8
# lines that tell nothing of how anything went
OF_SETTING = frozenset({
    LogCode.ENVIRONMENT, LogCode.PROCESS_LIMIT, LogCode.HOST_INTERFACE, LogCode.HOST_ARCHITECTURE,
    LogCode.SHM_FILESYSTEM,
})  # fmt: skip
# what is seen of ranks, and by others of them, after their node is gone
CONSEQUENCES = frozenset({
    Cause.RANK_DEAD, Cause.RANK_NOT_ENTERED, Cause.PEER_UNREACHABLE, Cause.ALL_PRESENT_STUCK,
    Cause.INIT_STUCK, Cause.LINK_FLAP, Cause.INIT_STORE_UNREACHABLE, Cause.TIMEOUT_CONFIG,
    Cause.HEARTBEAT_FALSE_ALARM, Cause.ROCE_LOSS,
})  # fmt: skip


def scheduler_ends_rule(job: JobEvidence) -> Iterator[Claim]:
    """RANK_DEAD of the ranks on a node that Slurm lost, or, where no other evidence is at hand, of
    the one process that its launcher saw end first; what ended the job else is told."""
    if not job.logs:
        return
    told = scheduler_ends(job.logs)
    if told.lost_nodes:
        finding = _lost(job, told)
        explained = frozenset(finding.culprits)
        first = told.lost_nodes[0][1].time
        yield Claim(job_verdict(job, finding), first, CONSEQUENCES, explained)
    elif told.first is not None and told.are_ranks and _is_alone(job, log_origin(job)):
        yield Claim(job_verdict(job, _first(job, told)), told.first.event.time)
    elif evidence := [*_unnamed(told), *_ended(told), *_seen(job, told)]:
        yield Claim(abstained(job, RULE, evidence, _still_missing(told)))


def _lost(job: JobEvidence, told: SchedulerEnds) -> JobFinding:
    nodes = [node for node, _ in told.lost_nodes]
    known, inferred = _ranks_on(job, told, {short_host(node) for node in nodes})
    culprits = known or inferred
    missing = [message(ends.MISSING_TASK_IS_RANK, ranks=list(inferred))] if not known else []
    return JobFinding(
        rule=RULE,
        cause=Cause.RANK_DEAD,
        confidence=Confidence.MEDIUM if known or not inferred else Confidence.LOW,
        culprits=culprits,
        victims=tuple(sorted(set(log_origin(job).echoing) - set(culprits))),
        place=Place(node=", ".join(nodes)),
        evidence=tuple(
            _line(ends.NODE_FAILED, event.text, node=node, source=event.file, line=event.line)
            for node, event in told.lost_nodes
        ),
        missing=tuple(missing if culprits else [message(ends.MISSING_RANKS_ON, hosts=nodes)]),
        next_actions=(message(ends.CHECK_NODE, hosts=nodes),),
    )


def _ranks_on(
    job: JobEvidence, told: SchedulerEnds, hosts: set[str]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks of which something says that they ran on ``hosts``; and the processes there that
    may be those of the same numbers."""
    ranks = log_origin(job).ranks
    found = {rank for rank in ranks.claims if short_host(ranks.host_of(rank)) in hosts}
    states = job.hang.ranks if job.hang is not None else ()
    found |= {one.global_rank for one in states if one.host and short_host(one.host) in hosts}
    tasks = {task for host in hosts for task in told.tasks_of_host.get(host, ())}
    return tuple(sorted(found - {-1})), tuple(sorted(tasks)) if told.are_ranks else ()


def _is_alone(job: JobEvidence, origin: LogOrigin) -> bool:
    """True where nothing but lines of launchers tells of an end: no rank's own word is contrary."""
    known = (*origin.first, *origin.candidates, *origin.left, *origin.doubted, *origin.echoing)
    are_all = all(event.code in ALL_CODES | OF_SETTING for _, event in lines_of_writers(job.logs))
    return are_all and not known and job.hang is None and not (job.ras or job.told)


def _first(job: JobEvidence, told: SchedulerEnds) -> JobFinding:
    first = told.first
    assert first is not None  # noqa: S101 - asked before
    event, rank = first.event, first.task
    said = _line(
        ends.LAUNCHER_SAW, event.text, rank=rank, task=rank, exit_status=first.status,
        host=first.host, source=event.file, line=event.line,
    )  # fmt: skip
    return JobFinding(
        rule=RULE,
        cause=Cause.RANK_DEAD,
        confidence=Confidence.LOW,
        culprits=(rank,),
        place=Place(node=first.host),
        evidence=(said,),
        missing=(
            message(ends.MISSING_TASK_IS_RANK, ranks=[rank]),
            message(ends.MISSING_WHY_ENDED, ranks=[rank]),
        ),
        next_actions=tuple(death_actions([Death(rank, first.status, first.host)])),
    )


def _line(code: str, text: str, *, rank: int = -1, **params: str | int) -> Evidence:
    return Evidence(kind="log", message=message(code, **params), global_rank=rank, text=text)


def _unnamed(told: SchedulerEnds) -> Iterator[Evidence]:
    for event in told.unnamed_losses[:MAX_TOLD]:
        yield _line(ends.SOME_NODE_FAILED, event.text, source=event.file, line=event.line)


def _ended(told: SchedulerEnds) -> Iterator[Evidence]:
    for event in told.ended[:MAX_TOLD]:
        reason = str(event.values.get("reason", ""))
        yield _line(
            ends.SCHEDULER_ENDED, event.text, reason=reason, source=event.file, line=event.line
        )


def _seen(job: JobEvidence, told: SchedulerEnds) -> Iterator[Evidence]:
    """The ends of processes of which nobody can say whether they began it, or which ranks."""
    by_task = {one.task: one for one in reversed(told_ends(job.logs))}
    for one in [] if told.ended else sorted(by_task.values(), key=_place_of)[:MAX_TOLD]:
        yield _line(
            ends.LAUNCHER_SAW, one.event.text, task=one.task, exit_status=one.status,
            host=one.host, source=one.event.file, line=one.event.line,
        )  # fmt: skip


def _place_of(one: ToldEnd) -> tuple[str, int]:
    return one.event.file, one.event.line


def _still_missing(told: SchedulerEnds) -> tuple[Message, ...]:
    code = ends.MISSING_LOST_NODE if told.unnamed_losses else ends.MISSING_BEFORE_END
    return (message(code),)
