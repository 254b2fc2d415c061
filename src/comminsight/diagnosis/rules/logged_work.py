"""A rank that works while the others run into a time limit, by its own log."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.log_work import LoggedWork, logged_work
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict
from comminsight.diagnosis.log_origin import LogOrigin, log_origin
from comminsight.diagnosis.timeouts import limits_told, raised_limits
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ranges import missing_ranks
from comminsight.model.verdict import Cause, Confidence, Evidence, Message

RULE = "logged_work"
CONSEQUENCES = frozenset(
    {
        Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP, Cause.LONG_LEGIT_OP, Cause.INIT_STUCK,
        Cause.HEARTBEAT_FALSE_ALARM,
    }
)  # fmt: skip
# what a line about work calls it: the words of the catalogue
WORDS = {
    "saving": "work.save", "saved": "work.save", "compil": "work.compile", "eval": "work.evaluate",
    "valid": "work.evaluate", "load": "work.load",
}  # fmt: skip


def logged_work_rule(job: JobEvidence) -> Iterator[Claim]:
    """LONG_LEGIT_OP of the one rank that was at work when all others had given up waiting; where
    another limit than the one that ran out was raised, TIMEOUT_CONFIG."""
    origin = log_origin(job)
    if origin.first or origin.candidates or origin.left:
        return
    found = logged_work(job.logs, origin.ranks, origin.ends)
    if len(found) != 1 or not _is_waited_for(job, origin, found[0]):
        return
    work = found[0]
    raised = raised_limits(job, work.limit_ns)
    is_mixed_up = bool(raised) and 0 < work.limit_ns < work.took_ns
    cause = Cause.TIMEOUT_CONFIG if is_mixed_up else Cause.LONG_LEGIT_OP
    yield Claim(
        job_verdict(
            job,
            JobFinding(
                rule=RULE,
                cause=cause,
                confidence=_confidence(job, origin, work),
                culprits=() if is_mixed_up else (work.rank,),
                victims=work.waiting,
                evidence=(_told(work), *limits_told(job, origin.ranks)),
                missing=tuple(_missing(job, origin, work)),
                next_actions=(_raise(work),),
            ),
        ),
        explains=CONSEQUENCES,
        explains_ranks=frozenset({work.rank}),
    )


def _is_waited_for(job: JobEvidence, origin: LogOrigin, work: LoggedWork) -> bool:
    """True where all other ranks that are known gave up waiting, and nothing shows this one in
    what they waited in."""
    seen = (origin.ends.seen | set(origin.echoing)) - {work.rank}
    if not seen <= set(work.waiting):
        return False
    hang = job.hang
    return hang is None or not any(op.global_rank == work.rank for op in hang.in_flight)


def _confidence(job: JobEvidence, origin: LogOrigin, work: LoggedWork) -> Confidence:
    world = max(job.world_size, origin.ranks.world_size)
    is_whole = world == len(work.waiting) + 1
    return Confidence.MEDIUM if is_whole and work.took_ns else Confidence.LOW


def _told(work: LoggedWork) -> Evidence:
    last = work.lines[-1]
    kind = str(last.values.get("kind", "")).lower()
    said = message(
        logs.WORK_SEEN, rank=work.rank, took_ns=work.took_ns, source=last.file, line=last.line,
        work=next((word for part, word in WORDS.items() if part in kind), "work.data"),
    )  # fmt: skip
    return Evidence(kind="log", message=said, global_rank=work.rank, text=last.text)


def _raise(work: LoggedWork) -> Message:
    needed_ns = max(work.took_ns, work.limit_ns)
    return message(logs.RAISE_LIMIT, limit="limit.work", needed_ns=needed_ns)


def _missing(job: JobEvidence, origin: LogOrigin, work: LoggedWork) -> Iterator[Message]:
    world = max(job.world_size, origin.ranks.world_size)
    if silent := missing_ranks(world, {work.rank, *work.waiting}):
        yield message(logs.MISSING_LOGS_OF, ranks=list(silent))
    if not world:
        yield message(logs.MISSING_WORLD)
