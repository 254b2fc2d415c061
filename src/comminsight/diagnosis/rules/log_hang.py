"""The hang that watchdogs tell in logs, where no dump and no record shows the ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from comminsight.analysis.log_hang import Counted, LogHang, Waited, log_hang
from comminsight.analysis.log_index import lines_with
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.job_finding import abstained
from comminsight.diagnosis.log_origin import LogOrigin, log_origin
from comminsight.diagnosis.logged_ends import (
    echo_evidence,
    fault_evidence,
    with_log_lines,
    with_logged_ends,
)
from comminsight.diagnosis.watchdogs import HAS_STOOD_RATIO, heartbeat_evidence, stood_evidence
from comminsight.model.hang import HangEvent
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import NO_TIME, LogCode
from comminsight.model.ranges import missing_ranks
from comminsight.model.verdict import Cause, Confidence, Evidence, Message, Verdict

RULE = "log_hang"
MAX_LINES = 8


def log_hang_rule(job: JobEvidence) -> Iterator[Claim]:
    """The verdict of ``judge_hang`` on the counters that logs tell, never with high confidence;
    without counters, and where watchdogs stood still themselves, none."""
    if job.hang is not None or not job.logs:
        return
    origin = log_origin(job)
    seen = log_hang(job.logs, origin.ranks, job.world_size, has_stood=HAS_STOOD_RATIO)
    if not seen.waited and not seen.counted:
        return
    evidence = (*_lines(seen), *echo_evidence(origin), *heartbeat_evidence(job, origin.ranks))
    if seen.stood and not seen.event.in_flight:
        yield Claim(_stood(job, seen, evidence))
    elif not seen.event.in_flight:
        yield Claim(_without_counters(job, seen, origin, evidence))
    else:
        event = with_logged_ends(seen.event, origin)
        yield _claim(job, seen, event, origin)


def _claim(job: JobEvidence, seen: LogHang, event: HangEvent, origin: LogOrigin) -> Claim:
    verdict = with_log_lines(judge_hang(event, event.communicators), event, origin)
    is_sure = verdict.confidence in {Confidence.HIGH, Confidence.MEDIUM}
    has_group = seen.is_world_known and all(one.group == ("", "") for one in seen.counted)
    confidence = Confidence.MEDIUM if is_sure and has_group else Confidence.LOW
    if verdict.cause is Cause.NO_VERDICT:
        confidence = Confidence.NONE
    verdict = replace(
        verdict,
        rule=RULE,
        confidence=confidence,
        evidence=(
            *verdict.evidence, *_counters(seen), *_silent(event, origin),
            *stood_evidence(seen.stood), *heartbeat_evidence(job, origin.ranks),
        ),
        missing=(*verdict.missing, *_missing(seen)),
        next_actions=(*verdict.next_actions, message(logs.GATHER_STACKS)),
    )  # fmt: skip
    is_death = verdict.cause is Cause.RANK_DEAD
    explained = frozenset({Cause.RANK_DEAD} if is_death else ())
    first = [line.event.time for line in origin.first] + [one.event.time for one in seen.waited]
    began = first[0] if first else NO_TIME
    return Claim(verdict, began, explained, frozenset(verdict.culprits))


def _stood(job: JobEvidence, seen: LogHang, evidence: tuple[Evidence, ...]) -> Verdict:
    return abstained(
        job, RULE, (*stood_evidence(seen.stood), *_slept(job), *evidence),
        (message(logs.MISSING_COUNTERS),), (message(logs.LOOK_FOR_SUSPEND),),
    )  # fmt: skip


def _without_counters(
    job: JobEvidence, seen: LogHang, origin: LogOrigin, evidence: tuple[Evidence, ...]
) -> Verdict:
    faults = (*origin.candidates, *origin.nameless, *origin.doubted)[:4]
    return abstained(
        job, RULE,
        (*evidence, *map(fault_evidence, faults), *_silent(seen.event, origin)),
        (message(logs.MISSING_COUNTERS), *_missing(seen)), (message(logs.GATHER_STACKS),),
    )  # fmt: skip


def _counters(seen: LogHang) -> Iterator[Evidence]:
    """How far the ranks came, those with equal counters in one line."""
    alike: dict[tuple[str, int, int], list[Counted]] = defaultdict(list)
    for one in seen.counted:
        name = one.group[0] or "default_pg"
        alike[name, one.enqueued, one.completed].append(one)
    for (name, enqueued, completed), counted in sorted(alike.items())[:MAX_LINES]:
        said = message(
            logs.LOG_COUNTERS, ranks=sorted(one.rank for one in counted), comm=name,
            enqueued=enqueued, completed=completed,
        )  # fmt: skip
        yield Evidence(kind="log", message=said)


def _lines(seen: LogHang) -> Iterator[Evidence]:
    """The limits that ran out, each with the first line that tells it, word for word."""
    alike: dict[int, list[Waited]] = defaultdict(list)
    for one in seen.waited:
        alike[one.limit_ns].append(one)
    for waited in list(alike.values())[:MAX_LINES]:
        ranks = sorted({one.rank for one in waited if one.rank >= 0})
        said = message(
            logs.LIMIT_SEEN, limit="limit.work", limit_ns=waited[0].limit_ns, ranks=ranks
        )
        yield Evidence(kind="log", message=said, text=waited[0].event.text)


def _silent(event: HangEvent, origin: LogOrigin) -> Iterator[Evidence]:
    """Ranks that left no line of a failure, where others did: suspects, and no more."""
    told = {state.global_rank for state in event.ranks} | set(origin.echoing)
    silent = missing_ranks(event.world_size, told)
    if silent and told:
        yield Evidence(kind="log", message=message(logs.SILENT_RANKS, ranks=list(silent)))


def _missing(seen: LogHang) -> Iterator[Message]:
    if not seen.is_world_known:
        yield message(logs.MISSING_WORLD)


def _slept(job: JobEvidence) -> Iterator[Evidence]:
    for log, event in lines_with(job.logs, LogCode.KERNEL_SUSPEND):
        host = event.host or log.host
        said = message(logs.HOST_SLEPT, host=host, source=event.file, line=event.line)
        yield Evidence(kind="log", message=said, text=event.text)
