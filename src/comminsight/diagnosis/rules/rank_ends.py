"""The rank that failed first by the logs, where no dump shows it."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.log_ends import RankLine
from comminsight.diagnosis import codes
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.death_actions import death_actions
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict
from comminsight.diagnosis.log_origin import LogOrigin, log_origin
from comminsight.diagnosis.logged_ends import (
    echo_evidence,
    exit_evidence,
    fault_evidence,
    logged_death,
    missing_order,
    not_ended,
    status_of_rank,
)
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ranges import missing_ranks
from comminsight.model.verdict import Cause, Confidence, Evidence, Message

RULE = "rank_ends"
# what is seen of the others, and of the network between them, after a rank is gone
CONSEQUENCES = frozenset(
    {
        Cause.PEER_UNREACHABLE, Cause.ALL_PRESENT_STUCK, Cause.INIT_STUCK, Cause.LINK_FLAP,
        Cause.INIT_STORE_UNREACHABLE, Cause.TIMEOUT_CONFIG, Cause.HEARTBEAT_FALSE_ALARM,
        Cause.ROCE_LOSS,
    }
)  # fmt: skip


def rank_ends_rule(job: JobEvidence) -> Iterator[Claim]:
    """RANK_DEAD of the rank whose own fault came first, or of those that ended in order while all
    others waited; where several may have been first, all are told and none is accused."""
    if not job.logs:
        return
    origin = log_origin(job)
    if origin.first or origin.left:
        lines = origin.first or origin.left
        finding = _finding(job, origin, lines)
        yield Claim(job_verdict(job, finding), lines[0].event.time, CONSEQUENCES)
    elif origin.candidates or origin.nameless or origin.doubted or origin.ends.unyielding:
        yield Claim(
            abstained(
                job, RULE, _unordered(origin), missing_order(origin),
                (message(codes.READ_FIRST_ERROR, ranks=_named(origin)),),
            )
        )  # fmt: skip


def _finding(job: JobEvidence, origin: LogOrigin, lines: tuple[RankLine, ...]) -> JobFinding:
    culprits = tuple(line.rank for line in lines)
    hosts = sorted({origin.ranks.host_of(rank) for rank in culprits} - {""})
    return JobFinding(
        rule=RULE,
        cause=Cause.RANK_DEAD,
        confidence=_confidence(origin),
        culprits=culprits,
        victims=tuple(sorted(set(origin.echoing) - set(culprits))),
        place=Place(node=", ".join(hosts)),
        evidence=(*_evidence(origin, culprits), *echo_evidence(origin), *not_ended(origin)),
        missing=tuple(_missing(job, origin, culprits, hosts)),
        next_actions=tuple(_actions(origin, lines)),
    )


def _confidence(origin: LogOrigin) -> Confidence:
    """High for what no program survives and stamps put before every echo, low for an exception of
    which nothing but its traceback tells."""
    if origin.left:
        return Confidence.MEDIUM
    fault = origin.first[0].fault
    if fault.name == "vanished":
        return Confidence.LOW
    if origin.is_ordered and fault.is_fatal:
        return Confidence.HIGH
    # a program may catch an exception: somebody saw it end, or stamps put it before all else
    is_seen = origin.is_ordered or bool(status_of_rank(origin, origin.first[0].rank))
    return Confidence.MEDIUM if fault.is_fatal or is_seen else Confidence.LOW


def _evidence(origin: LogOrigin, culprits: tuple[int, ...]) -> Iterator[Evidence]:
    for line in origin.first:
        yield fault_evidence(line)
        yield from exit_evidence(origin, line.rank)
    for line in origin.left:
        said = message(codes.LEFT, rank=line.rank)
        yield Evidence(kind="log", message=said, global_rank=line.rank, text=line.event.text)


def _missing(
    job: JobEvidence, origin: LogOrigin, culprits: tuple[int, ...], hosts: list[str]
) -> Iterator[Message]:
    if origin.first:
        if not any(True for rank in culprits for _ in exit_evidence(origin, rank)):
            yield message(codes.MISSING_EXIT_STATUS, ranks=list(culprits))
        if origin.first[0].fault.name in {"killed", "vanished"}:
            yield message(logs.MISSING_KERNEL_LOG, hosts=", ".join(hosts))
    world = max(job.world_size, origin.ranks.world_size)
    if silent := missing_ranks(world, origin.ends.seen | set(culprits)):
        yield message(logs.MISSING_LOGS_OF, ranks=list(silent))


def _actions(origin: LogOrigin, lines: tuple[RankLine, ...]) -> Iterator[Message]:
    yield from death_actions(logged_death(origin, line.rank) for line in lines)
    if origin.first and origin.ends.unyielding:
        yield message(logs.END_HARD, ranks=sorted(origin.ends.unyielding))


def _unordered(origin: LogOrigin) -> Iterator[Evidence]:
    for line in (*origin.candidates, *origin.nameless[:4]):
        yield fault_evidence(line)
    for line in origin.doubted[:4]:
        event = line.event
        said = message(
            logs.FAULT_SURVIVED, rank=line.rank, fault=f"fault.{line.fault.name}",
            source=event.file, line=event.line,
        )  # fmt: skip
        yield Evidence(kind="log", message=said, global_rank=line.rank, text=event.text)
    yield from echo_evidence(origin)
    yield from not_ended(origin)


def _named(origin: LogOrigin) -> list[int]:
    return sorted({line.rank for line in (*origin.candidates, *origin.doubted)})
