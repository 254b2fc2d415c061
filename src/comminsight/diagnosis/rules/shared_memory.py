"""Shared memory that ran out: segments that were not made, or bus errors of who writes there."""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from collections.abc import Iterator

from comminsight.analysis.log_faults import FaultKind, signal_text
from comminsight.analysis.log_limits import PlacedLine, lines_of, named, shm_capacity_bytes
from comminsight.analysis.log_ranks import ranks_of
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, job_verdict
from comminsight.diagnosis.log_origin import LogOrigin, log_origin
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "shared_memory"
CONSEQUENCES = frozenset({Cause.RANK_DEAD, Cause.INIT_STUCK, Cause.JOB_KILLED})
NO_SPACE = "no space left"
SHM_LIMIT = "shm"
BUS_ERROR = signal_text(signal.SIGBUS)
MIN_BUS_ERRORS = 2


def shared_memory_rule(job: JobEvidence) -> Iterator[Claim]:
    """SHM_EXHAUSTED where a segment found no space; a suspicion where several ranks of one host
    had bus errors and nothing else."""
    if not job.logs:
        return
    ranks = ranks_of(job.logs, job.world_size)
    lines = [line for line in lines_of(job.logs, ranks, [LogCode.NCCL_SHM]) if _is_full(line)]
    if lines:
        yield Claim(job_verdict(job, _finding(job, lines)), lines[0].event.time, CONSEQUENCES)
        return
    for host, found in _bus_errors(log_origin(job)).items():
        if len(found) >= MIN_BUS_ERRORS:
            verdict = job_verdict(job, _suspicion(host, found))
            first = next(iter(found.values()))
            yield Claim(verdict, first.time, CONSEQUENCES, frozenset(found))


def _is_full(line: PlacedLine) -> bool:
    return NO_SPACE in f"{line.event.values.get('error', '')} {line.event.text}".lower()


def _finding(job: JobEvidence, lines: list[PlacedLine]) -> JobFinding:
    culprits = named(lines)
    sizes = Counter(_size(line.event) for line in lines)
    evidence = []
    for size, n in sorted(sizes.items()):
        said = message(logs.SHM_SEGMENT, ranks=list(culprits), size_bytes=size, n_segments=n)
        evidence.append(Evidence(kind="log", message=said, text=lines[0].event.text))
    needed = 2 * max(1, len(culprits)) * max(sizes)  # a rank has one for either direction
    capacity = shm_capacity_bytes(job.logs)
    if capacity:
        said = message(logs.SHM_CAPACITY, capacity_bytes=capacity, needed_bytes=needed)
        evidence.append(Evidence(kind="log", message=said))
    hosts = sorted({line.host for line in lines} - {""})
    action = message(logs.GROW_SHM, needed_bytes=max(needed, 1 << 30))
    return JobFinding(
        rule=RULE, cause=Cause.SHM_EXHAUSTED, confidence=Confidence.HIGH, culprits=culprits,
        place=Place(node=", ".join(hosts)), evidence=tuple(evidence),
        next_actions=(action, message(logs.CHECK_SHM)),
    )  # fmt: skip


def _size(event: LogEvent) -> int:
    value = event.values.get("size_bytes", 0)
    return value if isinstance(value, int) else 0


def _bus_errors(origin: LogOrigin) -> dict[str, dict[int, LogEvent]]:
    """The ranks whose processes ended with a bus error, by host; none where another rank had a
    fault of another kind, which may have come first."""
    ends, ranks = origin.ends, origin.ranks
    found: dict[str, dict[int, LogEvent]] = defaultdict(dict)
    for rank, lines in ends.of(FaultKind.OWN, FaultKind.KILLED).items():
        for line in lines:
            if line.fault.status != BUS_ERROR:
                return {}
            if rank >= 0:
                host = ranks.host_of(rank) or line.event.host
                found[host].setdefault(rank, line.event)
    return found


def _suspicion(host: str, found: dict[int, LogEvent]) -> JobFinding:
    culprits = tuple(sorted(found))
    said = message(logs.BUS_ERRORS, ranks=list(culprits), host=host)
    first = next(iter(found.values()))
    return JobFinding(
        rule=RULE, cause=Cause.SHM_EXHAUSTED, confidence=Confidence.LOW, culprits=culprits,
        place=Place(node=host), evidence=(Evidence(kind="log", message=said, text=first.text),),
        missing=(message(logs.MISSING_RESOURCE_LIMIT, limit=SHM_LIMIT),),
        next_actions=(message(logs.CHECK_SHM), message(logs.GROW_SHM, needed_bytes=1 << 30)),
    )  # fmt: skip
