"""Verdicts on collectives that went through although members disagreed on them: the job goes on,
and its data may be wrong without a word.

High confidence only with a majority of like calls; without one both sides are named, and which of
them is right is said to be open. Where records are lost nobody is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.analysis.alignment import AlignedStep
from comminsight.analysis.finished_mismatch import FinishedMismatch, UnlikeIn, finished_mismatches
from comminsight.diagnosis import codes, codes_calls
from comminsight.diagnosis.chain import UNKNOWN, dtype_name, op_name
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.miscounts import miscounts_in
from comminsight.model.reference import comm_ref, op_ref_text, step_ref
from comminsight.model.topology import Communicator
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import (
    Cause,
    ChainLevel,
    ChainLink,
    Confidence,
    Coverage,
    Evidence,
    Message,
    OpRef,
    Verdict,
)

RULE = "finished"
MAX_VERDICTS = 4
CAUSES = {
    UnlikeIn.OP: Cause.OP_TYPE_MISMATCH,
    UnlikeIn.DTYPE: Cause.DTYPE_MISMATCH,
    UnlikeIn.ROOT: Cause.ROOT_MISMATCH,
    UnlikeIn.SIZE: Cause.SHAPE_MISMATCH,
}


def judge_finished(
    trace: RunTrace, coverage: Coverage, steps: Sequence[AlignedStep] = ()
) -> tuple[Verdict, ...]:
    """One verdict per cause and culprits, the earliest op first; at most ``MAX_VERDICTS``."""
    if coverage.records_lost:
        return ()
    miscounted = miscounts_in(trace)
    clock = {rank.global_rank: trace.clocks.offset_ns.get(rank.session.boot_id, 0)
             for rank in trace.ranks}  # fmt: skip
    found = [one for one in finished_mismatches(trace) if one.comm_id not in miscounted]
    found.sort(key=lambda one: one.start_ns + clock[one.first_rank])
    told: dict[tuple[Cause, tuple[int, ...]], Verdict] = {}
    for one in found:
        verdict = _verdict(one, trace.communicators[one.comm_id], coverage, steps)
        told.setdefault((verdict.cause, verdict.culprits), verdict)
    return tuple(told.values())[:MAX_VERDICTS]


def _verdict(
    found: FinishedMismatch, comm: Communicator, coverage: Coverage, steps: Sequence[AlignedStep]
) -> Verdict:
    wrong = found.sides[1:] if found.has_majority else found.sides
    culprits = tuple(sorted(rank for side in wrong for rank in side))
    step, is_inside = _step_of(found, steps)
    named = step if is_inside else -1
    return Verdict(
        rule=RULE,
        cause=CAUSES[found.unlike],
        confidence=Confidence.HIGH if found.has_majority else Confidence.MEDIUM,
        coverage=coverage,
        culprits=culprits,
        comm_id=found.comm_id,
        first_bad_op=_op_ref(found, comm),
        first_step=named,
        last_step=named,
        chain=_chain(found, comm, step, is_inside=is_inside),
        evidence=tuple(_evidence(found, comm)),
        missing=tuple(_missing(found, culprits)),
        next_actions=_actions(found, comm, culprits),
    )


def _op_ref(found: FinishedMismatch, comm: Communicator) -> OpRef:
    call = found.calls[0]
    return OpRef(
        comm_id=found.comm_id, comm_label=comm.label, op=op_name(call.op),
        match_seq=call.match_seq, size_bytes=call.size_bytes, dtype=dtype_name(call.dtype),
    )  # fmt: skip


def _step_of(found: FinishedMismatch, steps: Sequence[AlignedStep]) -> tuple[int, bool]:
    """The step in whose window the first such op began, or the last one before it; whether it is
    inside of it. (-1, False) where there is none."""
    own = [(step.step, step.members.get(found.first_rank)) for step in steps]
    begun = [(step, one) for step, one in own if one and one.start_ns <= found.start_ns]
    if not begun:
        return -1, False
    step, window = begun[-1]
    return step, found.start_ns <= window.last.start_ns


def _chain(
    found: FinishedMismatch, comm: Communicator, step: int, *, is_inside: bool
) -> tuple[ChainLink, ...]:
    call = found.calls[0]
    where = op_ref_text(found.comm_id, found.op_seqs[0], found.first_rank)
    stepped = step_ref(found.first_rank, step) if step >= 0 else ""
    return (
        ChainLink(ChainLevel.STEP, _step_text(step, is_inside=is_inside), stepped),
        ChainLink(ChainLevel.COMMUNICATOR, comm.label, comm_ref(found.comm_id)),
        ChainLink(ChainLevel.OP, f"{op_name(call.op)} #{call.match_seq}", where),
    )


def _step_text(step: int, *, is_inside: bool) -> str:
    if step < 0:
        return UNKNOWN
    return str(step) if is_inside else f"after {step}"


def _evidence(found: FinishedMismatch, comm: Communicator) -> Iterator[Evidence]:
    for side, call, op_seq in zip(found.sides, found.calls, found.op_seqs, strict=True):
        said = message(
            codes.SIGNATURE, ranks=list(side), op=op_name(call.op), size_bytes=call.size_bytes,
            dtype=dtype_name(call.dtype), root=call.peer,
        )  # fmt: skip
        yield Evidence(
            kind="record", message=said, global_rank=side[0], comm_id=found.comm_id,
            op_seq=op_seq, match_seq=call.match_seq,
        )  # fmt: skip
    said = message(
        codes_calls.WENT_THROUGH, comm=comm.label, n_ops=found.n_ops, n_compared=found.n_compared
    )
    yield Evidence(kind="record", message=said, comm_id=found.comm_id)


def _missing(found: FinishedMismatch, culprits: Sequence[int]) -> Iterator[Message]:
    if not found.has_majority:
        yield message(codes.MISSING_MAJORITY, ranks=list(culprits))


def _actions(
    found: FinishedMismatch, comm: Communicator, culprits: Sequence[int]
) -> tuple[Message, ...]:
    name = op_name(found.calls[0].op)
    return (
        message(codes_calls.DOUBT_RESULTS),
        message(codes.COMPARE_PATHS, ranks=list(culprits), op=name, comm=comm.label),
    )
