"""Ranks that called different collectives by NCCL's own log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from comminsight.analysis.call_alignment import signature
from comminsight.analysis.log_ranks import ranks_of
from comminsight.analysis.logged_calls import LoggedComm, logged_comms
from comminsight.diagnosis import codes, codes_calls
from comminsight.diagnosis.call_evidence import call_evidence, cause_of_calls
from comminsight.diagnosis.chain import dtype_name, op_name
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.divergence import Divergence, compared
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict
from comminsight.model.call_history import CalledOp
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Message, OpRef

RULE = "logged_calls"
# what members see of each other once they are in different collectives
CONSEQUENCES = frozenset({Cause.ALL_PRESENT_STUCK, Cause.RANK_NOT_ENTERED, Cause.ENV_SKEW})


def logged_calls_rule(job: JobEvidence) -> Iterator[Claim]:
    """The first call in which the logs of a communicator's members differ; no accusation where a
    line that is lost would look the same."""
    for comm in logged_comms(job.logs, ranks_of(job.logs, job.world_size)):
        found = compared(comm.calls)
        if found is None or found.first is None:
            continue
        if not comm.is_numbered and _may_lack_a_line(comm, found, found.first):
            missing = message(codes_calls.MISSING_LINE_NUMBERS, ranks=list(found.wrong))
            said = call_evidence(found, found.first, comm.label)
            yield Claim(abstained(job, RULE, said, (missing,)))
        else:
            yield _claim(job, comm, found, found.first)


def _may_lack_a_line(comm: LoggedComm, found: Divergence, first: Mapping[int, CalledOp]) -> bool:
    """True where a side made the other's call too, at another place: a lost line shifts all that
    follow. Where what follows is alike, none is."""
    if _goes_on_alike(comm, max(call.match_seq for call in first.values())):
        return False
    made = {rank: {signature(call) for call in calls} for rank, calls in comm.calls.items()}
    one_by_side = [side[0] for side in found.sides]
    return any(
        signature(first[one]) in made[other]
        for one in one_by_side
        for other in one_by_side
        if one != other
    )


def _goes_on_alike(comm: LoggedComm, match_seq: int) -> bool:
    """True where all ranks made calls after this one, and the same as far as they go."""
    rests = [
        [signature(call) for call in calls if call.match_seq > match_seq]
        for calls in comm.calls.values()
    ]
    n = min(map(len, rests))
    return n > 0 and all(rest[:n] == rests[0][:n] for rest in rests)


def _claim(
    job: JobEvidence, comm: LoggedComm, found: Divergence, first: Mapping[int, CalledOp]
) -> Claim:
    ranks = list(found.wrong)
    call = first[found.sides[0][0]]
    cause = found.cause or cause_of_calls(found) or Cause.OP_TYPE_MISMATCH
    is_whole = comm.is_numbered and len(comm.calls) == comm.n_ranks and found.is_decided
    verdict = job_verdict(
        job,
        JobFinding(
            rule=RULE,
            cause=cause,
            confidence=Confidence.HIGH if is_whole else Confidence.MEDIUM,
            culprits=found.wrong,
            victims=tuple(sorted(set(comm.calls) - set(found.wrong))),
            place=Place(communicator=comm.label),
            first_bad_op=OpRef(
                comm_id=call.comm_id, comm_label=comm.label, op=op_name(call.op),
                match_seq=call.match_seq, size_bytes=call.size_bytes,
                dtype=dtype_name(call.dtype), peer=call.peer,
            ),
            evidence=tuple(call_evidence(found, first, comm.label)),
            missing=tuple(_missing(comm, found)),
            next_actions=(
                message(codes.COMPARE_PATHS, ranks=ranks, op=op_name(call.op), comm=comm.label),
            ),
        ),
    )  # fmt: skip
    return Claim(verdict, explains=CONSEQUENCES)


def _missing(comm: LoggedComm, found: Divergence) -> Iterator[Message]:
    if not found.is_decided:
        yield message(codes.MISSING_MAJORITY, ranks=list(found.wrong))
    if len(comm.calls) < comm.n_ranks:
        yield message(codes_calls.MISSING_CALL_LINES)
