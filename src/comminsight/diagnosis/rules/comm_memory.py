"""Memory of a GPU that the buffers of many communicators took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from comminsight.analysis.log_limits import PlacedLine, lines_of
from comminsight.analysis.log_ranks import LogRanks, ranks_of
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, job_verdict
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "comm_memory"
CONSEQUENCES = frozenset({Cause.RANK_DEAD, Cause.INIT_STUCK})
BYTES_PER_COMM = 600_000_000  # 544 to 688 MB were seen per group, with the usual buffers
MIN_COMMS = 4
NO_MEMORY = "out of memory"


def comm_memory_rule(job: JobEvidence) -> Iterator[Claim]:
    """COMM_MEMORY of the ranks on which an allocation of NCCL failed while they were in many
    communicators; never with high confidence, for the memory may be the model's."""
    if not job.logs:
        return
    ranks = ranks_of(job.logs, job.world_size)
    failed: dict[int, PlacedLine] = {}
    for line in lines_of(job.logs, ranks, [LogCode.NCCL_OUT_OF_MEMORY, LogCode.NCCL_CUDA_FAILURE]):
        is_memory = line.event.code is LogCode.NCCL_OUT_OF_MEMORY
        is_memory |= NO_MEMORY in str(line.event.values.get("error", "")).lower()
        if is_memory and line.rank >= 0:
            failed.setdefault(line.rank, line)
    counts = _communicators(job, ranks)
    culprits = tuple(sorted(r for r in failed if counts.get(r, 0) >= MIN_COMMS))
    if not culprits or len(culprits) < len(failed):
        return
    first = failed[culprits[0]].event
    found = JobFinding(
        rule=RULE, cause=Cause.COMM_MEMORY, confidence=Confidence.LOW, culprits=culprits,
        place=Place(node=", ".join(sorted({failed[r].host for r in culprits} - {""}))),
        evidence=tuple(_evidence(job, culprits, counts, failed)),
        next_actions=(message(logs.DROP_GROUPS, ranks=list(culprits)),),
    )  # fmt: skip
    yield Claim(job_verdict(job, found), first.time, CONSEQUENCES)


def _communicators(job: JobEvidence, ranks: LogRanks) -> dict[int, int]:
    """How many communicators a rank is in: as its log shows them, or its dump lists them."""
    logged: dict[int, set[str]] = defaultdict(set)
    for line in lines_of(job.logs, ranks, [LogCode.NCCL_INIT_COMPLETE]):
        logged[line.rank].add(str(line.event.values.get("comm", line.event.line)))
    listed: dict[int, int] = defaultdict(int)
    for group in job.groups:
        listed[group.global_rank] += len(group.members) > 1
    return {rank: max(len(logged[rank]), listed[rank]) for rank in {*logged, *listed}}


def _evidence(
    job: JobEvidence,
    culprits: tuple[int, ...],
    counts: dict[int, int],
    failed: dict[int, PlacedLine],
) -> Iterator[Evidence]:
    for rank in culprits[:4]:
        n_comms = counts[rank]
        said = message(
            logs.MANY_COMMS, rank=rank, n_comms=n_comms, needed_bytes=n_comms * BYTES_PER_COMM
        )
        text = failed[rank].event.text
        yield Evidence(kind="log", message=said, global_rank=rank, text=text)
        unused = [g.name for g in job.groups if g.global_rank == rank and not g.is_used]
        if unused:
            listed = message(logs.UNUSED_GROUPS, rank=rank, names=", ".join(sorted(unused)))
            yield Evidence(kind="record", message=listed, global_rank=rank)
