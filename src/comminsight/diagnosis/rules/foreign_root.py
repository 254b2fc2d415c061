"""Ranks that named a root which their communicator does not have, by NCCL's own log.

A root is a rank of the communicator; a global rank in its place is another member in a small group,
or none at all. Only the latter is proved by one line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from comminsight.analysis.log_index import has_any
from comminsight.analysis.log_ranks import ranks_of
from comminsight.analysis.logged_calls import LoggedComm, logged_comms
from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.chain import dtype_name, op_name
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_coverage import job_coverage
from comminsight.model.call_history import CalledOp
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence, Evidence, OpRef, Verdict

RULE = "foreign_root"
# what ranks do after one of them named a root that is none
EXPLAINS = frozenset(
    {
        Cause.ROOT_MISMATCH, Cause.ALL_PRESENT_STUCK, Cause.RANK_NOT_ENTERED,
        Cause.CONTROL_FLOW_SKIP, Cause.OP_TYPE_MISMATCH,
    }
)  # fmt: skip


def foreign_root_rule(job: JobEvidence) -> Iterator[Claim]:
    """ROOT_MISMATCH for the first such call of each communicator."""
    if not has_any(job.logs, {LogCode.NCCL_COLL}):
        return
    for comm in logged_comms(job.logs, ranks_of(job.logs, job.world_size)):
        calls = _first_outside(comm)
        if any(call.peer >= comm.n_ranks for call in calls.values()):
            ranks = frozenset(comm.calls)
            yield Claim(_verdict(job, comm, calls), explains=EXPLAINS, explains_ranks=ranks)


def _first_outside(comm: LoggedComm) -> dict[int, CalledOp]:
    """What all ranks called where the first root stands that is none; {} without one."""
    outside = [
        call.match_seq for own in comm.calls.values() for call in own if call.peer >= comm.n_ranks
    ]
    if not outside:
        return {}
    n = min(outside)
    return {rank: call for rank, own in comm.calls.items() for call in own if call.match_seq == n}


def _verdict(job: JobEvidence, comm: LoggedComm, calls: dict[int, CalledOp]) -> Verdict:
    odd = sorted(rank for rank, call in calls.items() if call.peer >= comm.n_ranks)
    first = calls[odd[0]]
    said = message(codes.ROOT_OUTSIDE, ranks=odd, root=first.peer, n_ranks=comm.n_ranks)
    return Verdict(
        rule=RULE,
        cause=Cause.ROOT_MISMATCH,
        confidence=Confidence.HIGH,
        coverage=job_coverage(job),
        culprits=tuple(odd),
        victims=tuple(sorted(comm.calls.keys() - set(odd))),
        first_bad_op=OpRef(
            comm_id=first.comm_id, comm_label=comm.label, op=op_name(first.op),
            match_seq=first.match_seq, size_bytes=first.size_bytes, dtype=dtype_name(first.dtype),
            peer=first.peer,
        ),
        evidence=(Evidence(kind="log", message=said), *_roots(comm, calls)),
        next_actions=(message(codes.CHECK_ROOT, ranks=odd),),
    )  # fmt: skip


def _roots(comm: LoggedComm, calls: dict[int, CalledOp]) -> Iterator[Evidence]:
    """Who named which root, the most first."""
    by_root: dict[int, list[int]] = defaultdict(list)
    for rank, call in calls.items():
        by_root[call.peer].append(rank)
    for root, ranks in sorted(by_root.items(), key=lambda item: (-len(item[1]), item[0])):
        call = calls[ranks[0]]
        said = message(
            codes.ROOT_NAMED, ranks=sorted(ranks), op=op_name(call.op), n=call.match_seq,
            comm=comm.label, root=root,
        )  # fmt: skip
        yield Evidence(kind="log", message=said)
