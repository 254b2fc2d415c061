"""The communicator of all ranks is never complete: who did not come, or did not get through."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.log_index import lines_with
from comminsight.analysis.log_init import InitPhase, LogInit, claimed_twice, every_nth, log_init
from comminsight.analysis.log_ranks import LogRanks, ranks_of
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.ranges import missing_ranks
from comminsight.model.verdict import Cause, Confidence, Evidence, Message

RULE = "init_stuck"
PATIENCE_NS = 120_000_000_000  # thousands of ranks connect within a minute
BEGUN = (InitPhase.BEGUN, InitPhase.CONNECTING)


def init_stuck_rule(job: JobEvidence) -> Iterator[Claim]:
    """INIT_STUCK of the ranks that never began though their logs go on long after others had, of
    those in the same places of all nodes that did not get through while others did, of the owner of
    an id that was never stored, or of two worlds. A line that is lost accuses nobody."""
    if not job.logs:
        return
    ranks = ranks_of(job.logs, job.world_size)
    init = log_init(job.logs, ranks, patience_ns=PATIENCE_NS)
    twice = claimed_twice(job.logs, ranks)
    if twice:
        yield Claim(job_verdict(job, _two_worlds(init, twice)))
    elif (awaited := _awaited(job, ranks)) is not None:
        yield from _of_id(job, ranks, awaited)
    elif init.has_stopped and not init.has_ops and init.ranks(*BEGUN):
        yield from _of_phases(job, init)


def _of_phases(job: JobEvidence, init: LogInit) -> Iterator[Claim]:
    absent = init.ranks(InitPhase.NOT_BEGUN)
    complete, open_ranks = init.ranks(InitPhase.COMPLETE), init.ranks(*BEGUN)
    unseen = missing_ranks(init.world_size, set(init.phases))
    evidence = tuple(_phases(init))
    missing = [message(logs.MISSING_LOGS_OF, ranks=list(unseen))] if unseen else []
    told = tuple(_parity(init, open_ranks))
    if complete and told and not absent and not unseen:
        culprits, victims = open_ranks, complete
        evidence += told
        actions = (message(logs.CHECK_RAILS, ranks=list(open_ranks)),)
    elif _are_absent(init, absent) and not complete and not unseen:
        culprits, victims = absent, open_ranks
        actions = (message(logs.GATHER_STACKS),)
    else:
        steps = (message(logs.GATHER_STACKS),)
        yield Claim(abstained(job, RULE, evidence, missing, steps))
        return
    hosts = sorted({init.hosts[rank] for rank in culprits if rank in init.hosts})
    found = JobFinding(
        rule=RULE, cause=Cause.INIT_STUCK, confidence=Confidence.LOW, culprits=culprits,
        victims=victims, place=Place(node=", ".join(hosts)), evidence=evidence,
        next_actions=actions,
    )  # fmt: skip
    yield Claim(job_verdict(job, found))


def _are_absent(init: LogInit, ranks: tuple[int, ...]) -> bool:
    """True where no line that was lost explains that these ranks show no beginning."""
    return bool(ranks) and init.is_whole and set(ranks) <= init.spoke_later


def _phases(init: LogInit) -> Iterator[Evidence]:
    for phase in InitPhase:
        if ranks := init.ranks(phase):
            said = message(logs.INIT_PHASE, ranks=list(ranks), phase=f"init_phase.{phase.value}")
            yield Evidence(kind="log", message=said)


def _parity(init: LogInit, ranks: tuple[int, ...]) -> Iterator[Evidence]:
    """That the open ranks are those in the same places of every node, and no other is there."""
    places = sorted({init.local_ranks[rank] for rank in ranks if rank in init.local_ranks})
    alike = {rank for rank, place in init.local_ranks.items() if place in places}
    step = every_nth(places)
    if step > 1 and alike == set(ranks):
        said = message(logs.LOCAL_PARITY, local_ranks=", ".join(map(str, places)), step=step)
        yield Evidence(kind="log", message=said)


def _awaited(job: JobEvidence, ranks: LogRanks) -> tuple[dict[int, LogEvent], int] | None:
    """The lines of those that wait for the id of a communicator, with the rank that makes it."""
    found: dict[int, LogEvent] = {}
    owners = set()
    for log, event in lines_with(job.logs, LogCode.TORCH_UNIQUE_ID):
        if "error" in event.values:
            rank = ranks.rank_of(log, event)
            found[rank if rank >= 0 else event.comm_rank] = event
            owners.add(event.values.get("other_comm_rank"))
    owner = owners.pop() if len(owners) == 1 else None
    return (found, owner) if isinstance(owner, int) else None


def _of_id(
    job: JobEvidence, ranks: LogRanks, awaited: tuple[dict[int, LogEvent], int]
) -> Iterator[Claim]:
    """The owner is named where it has a log that goes on without the id, and all others wait."""
    waiting, owner = awaited
    first = next(iter(waiting.values()))
    said = message(
        logs.ID_AWAITED, ranks=sorted(waiting), owner=[owner], key=str(first.values.get("key", ""))
    )
    evidence = (Evidence(kind="log", message=said, text=first.text),)
    world = max(job.world_size, ranks.world_size)
    seen = {log.rank for log in job.logs} - {-1}
    has_log = owner in seen
    everybody = {*waiting, owner}
    is_of_all = everybody == set(range(world or len(seen))) and owner not in waiting
    if not (has_log and is_of_all):
        missing: list[Message] = [] if has_log else [message(logs.MISSING_LOGS_OF, ranks=[owner])]
        missing += [] if world else [message(logs.MISSING_WORLD)]
        yield Claim(abstained(job, RULE, evidence, missing, (message(logs.GATHER_STACKS),)))
        return
    found = JobFinding(
        rule=RULE, cause=Cause.INIT_STUCK, confidence=Confidence.LOW, culprits=(owner,),
        victims=tuple(sorted(waiting)), evidence=evidence,
        next_actions=(message(logs.GATHER_STACKS),),
    )  # fmt: skip
    yield Claim(job_verdict(job, found), first.time)


def _two_worlds(init: LogInit, twice: dict[int, dict[str, set[str]]]) -> JobFinding:
    rank = min(twice)
    hosts = sorted(twice[rank])
    said = message(logs.TWO_WORLDS, rank=rank, hosts=", ".join(hosts), n_ranks=init.world_size)
    return JobFinding(
        rule=RULE, cause=Cause.INIT_STUCK, confidence=Confidence.MEDIUM,
        evidence=(Evidence(kind="log", message=said),), place=Place(node=", ".join(hosts)),
        next_actions=(message(logs.ONE_RENDEZVOUS, hosts=", ".join(hosts)),),
    )  # fmt: skip
