"""Process groups that were not made alike on all ranks, where something hangs in one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from comminsight.analysis.group_claims import GroupConflict, group_conflicts
from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.chain import dtype_name, hang_coverage, op_name
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.model.hang import HangEvent, InFlightOp
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, Confidence, Evidence, OpRef, Verdict

RULE = "groups"
MAX_SHOWN = 4
UNTOLD = frozenset({"", "undefined"})  # what new_group writes where nobody describes the group

# what ranks do whose groups are not the same: they wait for members that will never come
EXPLAINS = frozenset(
    {
        Cause.ALL_PRESENT_STUCK, Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP,
        Cause.EXTRA_COLLECTIVE, Cause.CROSS_GROUP_CYCLE, Cause.ORDER_INVERSION, Cause.P2P_CYCLE,
        Cause.P2P_UNMATCHED, Cause.OP_TYPE_MISMATCH, Cause.SHAPE_MISMATCH, Cause.DTYPE_MISMATCH,
        Cause.INIT_STUCK,
    }
)  # fmt: skip


def group_rule(job: JobEvidence) -> Iterator[Claim]:
    """GROUP_MISUSE for the first name that ranks disagree on and in whose groups somebody hangs.

    Where they contradict each other it is proved; where they are only apart, the op that hangs must
    be the first of a group that nobody described, with all its members there: what waits for
    another member has a simpler reason, and a group that worked once was made.
    """
    event = job.hang
    if event is None or not job.groups:
        return
    by_id = {one.comm_id: one for one in job.communicators}
    for conflict in group_conflicts(job.groups):
        stuck = _stuck(conflict, job, event)
        if stuck and (conflict.is_contradicted or _is_first_of_all(conflict, stuck, by_id, event)):
            verdict = _verdict(conflict, stuck, by_id, event)
            yield Claim(verdict, explains=EXPLAINS, explains_ranks=frozenset(_everybody(conflict)))
            return


def _everybody(conflict: GroupConflict) -> set[int]:
    members = {rank for claim in conflict.claims for rank in claim.members}
    return members | set(conflict.involved)


def _stuck(conflict: GroupConflict, job: JobEvidence, event: HangEvent) -> list[InFlightOp]:
    """The overdue ops in groups of this name, oldest first."""
    own = {
        (claim.global_rank, claim.comm_id) for claim in job.groups if claim.name == conflict.name
    }
    found = [
        op for op in event.waiting
        if (op.global_rank, op.comm_id) in own
        and (op.is_overdue or op.age_ns >= event.overdue_limit_ns)
    ]  # fmt: skip
    return sorted(found, key=lambda op: (op.start_ns, op.global_rank))


def _is_first_of_all(
    conflict: GroupConflict,
    stuck: list[InFlightOp],
    by_id: Mapping[int, Communicator],
    event: HangEvent,
) -> bool:
    if any(claim.desc not in UNTOLD for claim in conflict.claims):
        return False
    inside: dict[int, set[int]] = {}
    for op in stuck:
        if op.match_seq == 1:
            inside.setdefault(op.comm_id, set()).add(op.global_rank)
    done = {entry.comm_id for entry in event.progress if entry.last_done > 0}
    return any(
        comm_id in by_id and comm_id not in done and ranks.issuperset(by_id[comm_id].members)
        for comm_id, ranks in inside.items()
    )


def _verdict(
    conflict: GroupConflict,
    stuck: list[InFlightOp],
    by_id: Mapping[int, Communicator],
    event: HangEvent,
) -> Verdict:
    culprits = conflict.odd or conflict.involved
    waiting = {op.global_rank for op in event.waiting}
    return Verdict(
        rule=RULE,
        cause=Cause.GROUP_MISUSE,
        confidence=Confidence.HIGH if conflict.is_contradicted else Confidence.MEDIUM,
        coverage=hang_coverage(event),
        culprits=tuple(culprits),
        victims=tuple(sorted(waiting - set(culprits))),
        comm_id=stuck[0].comm_id,
        first_bad_op=_op_ref(stuck[0], by_id),
        evidence=tuple(_evidence(conflict)),
        next_actions=(message(codes.SAME_GROUPS, names=[conflict.name]),),
    )


def _op_ref(op: InFlightOp, by_id: Mapping[int, Communicator]) -> OpRef | None:
    communicator = by_id.get(op.comm_id)
    if communicator is None:
        return None
    return OpRef(
        comm_id=op.comm_id, comm_label=communicator.label, op=op_name(op.op),
        match_seq=op.match_seq, size_bytes=op.size_bytes, dtype=dtype_name(op.dtype), peer=op.peer,
    )  # fmt: skip


def _evidence(conflict: GroupConflict) -> Iterator[Evidence]:
    """One line per kind of claim, that of most ranks first."""
    rows = zip(conflict.claims, conflict.ranks, strict=True)
    for claim, ranks in list(rows)[:MAX_SHOWN]:
        said = message(
            codes.GROUP_CLAIM, ranks=list(ranks), name=claim.name, desc=claim.desc,
            members=list(claim.members),
        )  # fmt: skip
        yield Evidence(kind="group", message=said, comm_id=claim.comm_id)
