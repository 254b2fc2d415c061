"""Communicators that are never complete because their members are busy with each other elsewhere.

A split takes all ranks of the parent: where some split it and all others wait in an op on it, each
side needs the other first. Pairs for sends and receives are made at first use: where several pairs
are being made at once, and a receive waits for them, they are made in unlike orders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from comminsight.analysis.log_index import has_any
from comminsight.analysis.open_inits import LoggedInits, OpenInit, logged_inits
from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_coverage import job_coverage
from comminsight.model.hang import HangEvent, InFlightOp
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.ops import RecordKind
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, Confidence, Evidence, Verdict

RULE = "open_inits"
PAIR = 2
MAX_SHOWN = 8
# what the ranks of both sides look like from the ops alone
EXPLAINS = frozenset(
    {
        Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP, Cause.ALL_PRESENT_STUCK,
        Cause.P2P_UNMATCHED, Cause.P2P_CYCLE, Cause.CROSS_GROUP_CYCLE, Cause.INIT_STUCK,
    }
)  # fmt: skip


def open_inits_rule(job: JobEvidence) -> Iterator[Claim]:
    """INIT_STUCK for a split against an op on its parent, else for pairs; none where one side is
    not seen in anything: the others may just wait for it."""
    event = job.hang
    if event is None or not _has_begun(job):
        return
    inits = logged_inits(job.logs, job.world_size or event.world_size)
    verdict = _of_split(job, event, inits) or _of_pairs(job, event, inits)
    if verdict is not None:
        ranks = frozenset({*verdict.culprits, *verdict.victims})
        yield Claim(verdict, explains=EXPLAINS, explains_ranks=ranks)


def _has_begun(job: JobEvidence) -> bool:
    return has_any(job.logs, {LogCode.NCCL_INIT_START})


def _of_split(job: JobEvidence, event: HangEvent, inits: LoggedInits) -> Verdict | None:
    splits = [one for one in inits.open if one.is_split]
    splitting = {one.global_rank for one in splits}
    by_id = {one.comm_id: one for one in job.communicators}
    for comm_id, ops in _overdue(event, RecordKind.COLLECTIVE).items():
        parent = by_id.get(comm_id)
        waiting = {op.global_rank for op in ops}
        if parent is None or not splitting or splitting & waiting:
            continue
        if not _is_parent(parent, splits, inits) or splitting | waiting != {*parent.members}:
            continue
        op = ops[0]
        said = message(
            codes.SPLIT_OF, ranks=sorted(splitting), waiting=sorted(waiting),
            op=op_name(op.op), comm=parent.label,
        )  # fmt: skip
        evidence = (Evidence(kind="log", message=said), *_begun(splits))
        return _verdict(job, splitting | waiting, comm_id, evidence)
    return None


def _is_parent(parent: Communicator, splits: list[OpenInit], inits: LoggedInits) -> bool:
    """True where the splits are of one communicator whose members, as logs tell them, are those."""
    parents = {one.parent_hash for one in splits}
    if len(parents) != 1:
        return False
    told = inits.members.get(parents.pop())
    return told is None or told <= {*parent.members}


def _of_pairs(job: JobEvidence, event: HangEvent, inits: LoggedInits) -> Verdict | None:
    """Two pairs or more, each with both of its ranks inside, or with the other inside another."""
    pairs: dict[str, list[OpenInit]] = defaultdict(list)
    for one in inits.open:
        if one.n_ranks == PAIR and not one.is_split and one.comm_hash:
            pairs[one.comm_hash].append(one)
    inside = {one.global_rank for own in pairs.values() for one in own}
    transfers = [op for ops in _overdue(event, RecordKind.P2P).values() for op in ops]
    waiting = {op.global_rank for op in transfers}
    if len(pairs) < PAIR or not waiting & inside:
        return None
    partners = _partners(transfers, {one.comm_id: one for one in job.communicators})
    for own in pairs.values():
        if len(own) < PAIR and partners.get(own[0].global_rank, -1) not in inside:
            return None
    evidence = tuple(line for own in pairs.values() for line in _begun(own))
    return _verdict(job, inside, transfers[0].comm_id, evidence[:MAX_SHOWN])


def _partners(transfers: list[InFlightOp], by_id: Mapping[int, Communicator]) -> dict[int, int]:
    found = {}
    for op in transfers:
        members = by_id[op.comm_id].members if op.comm_id in by_id else ()
        if 0 <= op.peer < len(members):
            found[op.global_rank] = members[op.peer]
    return found


def _overdue(event: HangEvent, kind: RecordKind) -> dict[int, list[InFlightOp]]:
    found: dict[int, list[InFlightOp]] = defaultdict(list)
    for op in sorted(event.waiting, key=lambda op: (op.start_ns, op.global_rank)):
        if op.kind == kind and (op.is_overdue or op.age_ns >= event.overdue_limit_ns):
            found[op.comm_id].append(op)
    return found


def _begun(inits: list[OpenInit]) -> Iterator[Evidence]:
    by_comm: dict[str, list[OpenInit]] = defaultdict(list)
    for one in inits:
        by_comm[one.comm_hash or str(one.event.values.get("comm", ""))].append(one)
    for name, own in list(by_comm.items())[:MAX_SHOWN]:
        ranks = sorted(one.global_rank for one in own)
        said = message(codes.INIT_OPEN, ranks=ranks, comm=name, n_ranks=own[0].n_ranks)
        yield Evidence(kind="log", message=said, text=own[0].event.text)


def _verdict(
    job: JobEvidence, ranks: set[int], comm_id: int, evidence: tuple[Evidence, ...]
) -> Verdict:
    event = job.hang
    waiting = {op.global_rank for op in event.waiting} if event is not None else set()
    return Verdict(
        rule=RULE,
        cause=Cause.INIT_STUCK,
        confidence=Confidence.MEDIUM,
        coverage=job_coverage(job),
        culprits=tuple(sorted(ranks)),
        victims=tuple(sorted(waiting - ranks)),
        comm_id=comm_id,
        evidence=evidence,
        next_actions=(message(codes.INIT_TOGETHER, ranks=sorted(ranks)),),
    )
