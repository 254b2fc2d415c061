"""Two ranks of one communicator on one GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from comminsight.analysis.log_index import lines_with
from comminsight.analysis.log_init import InitPhase, log_init
from comminsight.analysis.log_ranks import INIT_CODES, LogRanks, ranks_of, short_host
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, job_verdict
from comminsight.diagnosis.rules.init_stuck import PATIENCE_NS
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "duplicate_gpu"
CONSEQUENCES = frozenset({Cause.INIT_STUCK, Cause.RANK_DEAD, Cause.RANK_NOT_ENTERED})


def duplicate_gpu_rule(job: JobEvidence) -> Iterator[Claim]:
    """DUPLICATE_GPU of the ranks that NCCL names, or whose lines of init have one bus id on one
    host in a communicator that is not complete."""
    if not job.logs:
        return
    ranks = ranks_of(job.logs, job.world_size)
    pairs = dict(_warned(job, ranks)) or dict(_begun(job, ranks))
    for (host, bus_id), (culprits, event) in sorted(pairs.items()):
        said = message(logs.SAME_GPU, ranks=list(culprits), bus_id=bus_id, host=host)
        is_whole = len(culprits) > 1
        found = JobFinding(
            rule=RULE, cause=Cause.DUPLICATE_GPU,
            confidence=Confidence.HIGH if event.code in WARNED and is_whole else Confidence.MEDIUM,
            culprits=culprits, place=Place(node=host),
            evidence=(Evidence(kind="log", message=said, text=event.text),),
            missing=() if is_whole else (message(logs.MISSING_WORLD),),
            next_actions=(message(logs.BIND_GPUS, ranks=list(culprits)),),
        )  # fmt: skip
        yield Claim(job_verdict(job, found), event.time, CONSEQUENCES)


WARNED = frozenset({LogCode.NCCL_DUPLICATE_GPU})
Pairs = tuple[tuple[str, str], tuple[tuple[int, ...], LogEvent]]


def _warned(job: JobEvidence, ranks: LogRanks) -> Iterator[Pairs]:
    """NCCL's own line, which each of the two writes. It numbers them as their communicator does:
    one that wrote none is named only where all communicators are of all ranks."""
    found: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    lines: dict[tuple[str, str], LogEvent] = {}
    for log, event in lines_with(job.logs, *WARNED):
        place = short_host(event.host or log.host), _bus(event)
        other = event.values.get("other_comm_rank", -1)
        found[place][event.comm_rank] = ranks.rank_of(log, event)
        found[place].setdefault(other if isinstance(other, int) else -1, -1)
        lines.setdefault(place, event)
    is_of_all = _sizes(job) == {ranks.world_size}
    for place, own in found.items():
        known = {rank for rank in own.values() if rank >= 0}
        if is_of_all and all(rank in {-1, number} for number, rank in own.items()):
            known |= own.keys() - {-1}
        yield place, (tuple(sorted(known)), lines[place])


def _sizes(job: JobEvidence) -> set[object]:
    lines = lines_with(job.logs, *INIT_CODES)
    return {event.values["n_ranks"] for _, event in lines if "n_ranks" in event.values}


def _begun(job: JobEvidence, ranks: LogRanks) -> Iterator[Pairs]:
    init = log_init(job.logs, ranks, patience_ns=PATIENCE_NS)
    if not init.has_stopped or init.ranks(InitPhase.COMPLETE):
        return
    found: dict[tuple[str, str], dict[int, LogEvent]] = defaultdict(dict)
    for log, event in lines_with(job.logs, *INIT_CODES):
        if event.values.get("n_ranks") == ranks.world_size and event.values.get("bus_id"):
            place = short_host(event.host or log.host), _bus(event)
            found[place].setdefault(ranks.rank_of(log, event), event)
    for place, own in found.items():
        if len(own) > 1 and -1 not in own and place[0]:
            yield place, (tuple(sorted(own)), next(iter(own.values())))


def _bus(event: LogEvent) -> str:
    return str(event.values.get("bus_id", "")).removeprefix("0x")
