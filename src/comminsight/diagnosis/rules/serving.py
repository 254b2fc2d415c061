"""A server in which no operation is pending: idle, stuck on the host, or in a kernel that
communicates without a library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from comminsight.diagnosis import codes_calls as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, abstained, job_verdict, told
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.job_evidence import JobEvidence, JobLog
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "serving"
MIN_LINES = 2  # one line without tokens may fall into a long prompt
MIN_OPEN_NS = 5_000_000_000
OPEN_RATIO = 100.0  # how often its usual length a kernel must have lasted


def serving_rule(job: JobEvidence) -> Iterator[Claim]:
    """Told only where dumps or records are at hand and show nothing in flight on any rank."""
    hang = job.hang
    if hang is None or not hang.ranks or hang.in_flight:
        return
    nothing = told(codes.NOTHING_PENDING, kind="record", n_ranks=len(hang.ranks))
    open_kernels = _open_kernels(job.activities)
    last = [lines for log in job.logs if (lines := _last_rates(log))]
    if open_kernels:
        yield _in_kernel(job, nothing, open_kernels)
    elif any(_is_stuck(lines) for lines in last):
        rates = [_said(lines[-1]) for lines in last if _is_stuck(lines)]
        missing = (message(codes.MISSING_HOST_STATE),)
        actions = (message(codes.LOOK_AT_HOST),)
        yield Claim(abstained(job, RULE, (nothing, *rates), missing, actions))
    elif last and all(_is_idle(lines[-1]) for lines in last):
        rates = [_said(lines[-1]) for lines in last]
        found = JobFinding(RULE, Cause.HEALTHY_IDLE, Confidence.MEDIUM, evidence=(nothing, *rates))
        yield Claim(job_verdict(job, found))


def _in_kernel(job: JobEvidence, nothing: Evidence, open_kernels: Sequence[Activity]) -> Claim:
    by_name: dict[str, set[int]] = defaultdict(set)
    for one in open_kernels:
        by_name[one.name].add(one.global_rank)
    said = [
        told(codes.KERNEL_OPEN, kind="trace", ranks=sorted(ranks), kernel=name)
        for name, ranks in sorted(by_name.items())
    ]
    ranks = {one.global_rank for one in open_kernels}
    found = JobFinding(
        RULE, Cause.ALL_PRESENT_STUCK, Confidence.MEDIUM, victims=tuple(sorted(ranks)),
        evidence=(nothing, *said), next_actions=(message(codes.LOOK_AT_HOST),),
    )  # fmt: skip
    return Claim(job_verdict(job, found))


def _open_kernels(activities: Sequence[Activity]) -> list[Activity]:
    """Hand-written communication kernels that have lasted far longer than they do, by the newest
    stamp of any rank: a trace may end while one runs."""
    newest_ns = max((max(one.start_ns, one.end_ns) for one in activities), default=0)
    own = [
        one for one in activities
        if one.kind is ActivityKind.COMMUNICATION and not one.is_library
    ]  # fmt: skip
    usual: dict[str, list[int]] = defaultdict(list)
    for one in own:
        if one.end_ns:
            usual[one.name].append(one.end_ns - one.start_ns)
    return [
        one
        for one in own
        if not one.end_ns
        and newest_ns - one.start_ns
        >= max(MIN_OPEN_NS, OPEN_RATIO * median(usual.get(one.name) or [0]))
    ]


def _last_rates(log: JobLog) -> list[LogEvent]:
    return [event for event in log.events if event.code is LogCode.SERVING_RATE][-MIN_LINES:]


def _is_stuck(lines: Sequence[LogEvent]) -> bool:
    """True where requests run, and no token came out, in all of the last lines."""
    return len(lines) >= MIN_LINES and all(
        _number(line, "tokens_per_s") == 0 and _number(line, "n_running") > 0 for line in lines
    )


def _is_idle(line: LogEvent) -> bool:
    is_told = "n_running" in line.values
    waiting = max(_number(line, "n_waiting"), 0)
    return is_told and _number(line, "n_running") == 0 == waiting


def _number(line: LogEvent, name: str) -> float:
    """A value of a line; -1 where it does not state it."""
    value = line.values.get(name)
    return float(value) if isinstance(value, int | float) else -1.0


def _said(line: LogEvent) -> Evidence:
    return told(
        codes.SERVING_RATE, kind="log", text=line.text,
        tokens_per_s=_number(line, "tokens_per_s"), n_running=int(_number(line, "n_running")),
        source=f"{line.file}:{line.line}",
    )  # fmt: skip
