"""The verdict on members that disagree on an op: what they passed, from where they came, and what
stands behind it as far as their calls tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from comminsight.analysis.call_alignment import Difference
from comminsight.analysis.work_frames import Work, call_site, generated_frame, work_in
from comminsight.diagnosis import codes, codes_calls
from comminsight.diagnosis.call_evidence import call_evidence, cause_of_calls
from comminsight.diagnosis.chain import dtype_name, hang_chain, hang_coverage, op_name, op_ref
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.divergence import Divergence, divergence
from comminsight.diagnosis.hang_evidence import is_cut, missing_of, stacks_of
from comminsight.diagnosis.presence import Observed
from comminsight.diagnosis.signatures import Mismatch
from comminsight.model.call_history import CalledOp
from comminsight.model.hang import InFlightOp
from comminsight.model.verdict import Cause, Confidence, Evidence, Message, OpRef, Verdict

RULE = "hang"
# a rank that is in such work while the others go on with theirs called what they do not
BESIDE = frozenset({Work.SAVE, Work.EVALUATE})

Frames = Mapping[int, Sequence[str]]


def mismatch_verdict(observed: Observed, mismatch: Mismatch) -> Verdict:
    """Calls left out, added or permuted where that explains all that is known of both sides; work
    on one side alone where the stacks tell it; else what the members passed."""
    found = divergence(observed, mismatch)
    instance = mismatch.instance
    frames = {op.global_rank: op.frames for op in instance.ops if op.frames}
    culprits = found.wrong
    cause = _cause(found, mismatch, frames)
    victims = {*instance.waiters, *mismatch.groups[0]} - set(culprits)
    return Verdict(
        rule=RULE,
        cause=cause,
        confidence=_confidence(found, cause, mismatch),
        coverage=hang_coverage(observed.event),
        culprits=culprits,
        victims=tuple(sorted(victims)),
        comm_id=instance.key.comm_id,
        first_bad_op=_first_bad_op(found, mismatch),
        measures={} if is_cut(observed, instance) else {"longest_wait_ns": float(instance.age_ns)},
        chain=hang_chain(observed, instance, culprits),
        evidence=(
            *_evidence(found, mismatch, frames),
            *stacks_of(observed, culprits),
        ),
        missing=(*_missing(found, mismatch, frames), *missing_of(observed, None)),
        next_actions=tuple(_actions(cause, found, mismatch)),
    )


def _cause(found: Divergence, mismatch: Mismatch, frames: Frames) -> Cause:
    if found.cause is Cause.EXTRA_COLLECTIVE and _generated(found.sides[1:], frames):
        return Cause.CONTROL_FLOW_SKIP  # two programs were compiled that are not the same
    if found.cause is not None:
        return found.cause
    own = cause_of_calls(found) or mismatch.cause
    if not found.is_decided or own is not Cause.OP_TYPE_MISMATCH:
        return own
    return _cause_of_work(found, frames) or own


def _cause_of_work(found: Divergence, frames: Frames) -> Cause | None:
    """By work on one side alone: one that saves or evaluates beside the others calls what they do
    not; one that does not do what all others do, or resumes alone, went another way."""
    right = {_work(side, frames) for side in found.sides[:1]}
    wrong = {_work(side, frames) for side in found.sides[1:]}
    if right == wrong or not all(side_is_known(side, frames) for side in found.sides):
        return None
    if wrong <= BESIDE and right == {None}:
        return Cause.EXTRA_COLLECTIVE
    return Cause.CONTROL_FLOW_SKIP


def side_is_known(side: Sequence[int], frames: Frames) -> bool:
    """Whether it is known from where some rank of a side came."""
    return any(rank in frames for rank in side)


def _work(side: Sequence[int], frames: Frames) -> Work | None:
    told = (work_in(frames[rank]) for rank in side if rank in frames)
    return next((one.work for one in told if one is not None), None)


def _generated(sides: Sequence[Sequence[int]], frames: Frames) -> bool:
    return any(generated_frame(frames.get(rank, ())) for side in sides for rank in side)


def _confidence(found: Divergence, cause: Cause, mismatch: Mismatch) -> Confidence:
    is_majority = not mismatch.is_tied and found.pattern is None
    if not found.is_decided or not is_majority:
        return Confidence.MEDIUM
    is_by_work = cause is not mismatch.cause and found.cause is None
    return Confidence.MEDIUM if is_by_work else Confidence.HIGH


def _first_bad_op(found: Divergence, mismatch: Mismatch) -> OpRef:
    """The first call that differs, as the side taken to be right made it."""
    told = op_ref(mismatch.instance)
    if found.first is None:
        return told
    call = found.first[found.sides[0][0]]
    return OpRef(
        comm_id=call.comm_id, comm_label=told.comm_label, op=op_name(call.op),
        match_seq=call.match_seq, size_bytes=call.size_bytes, dtype=dtype_name(call.dtype),
    )  # fmt: skip


def _evidence(found: Divergence, mismatch: Mismatch, frames: Frames) -> Iterator[Evidence]:
    calls = found.first or _called_of(mismatch)
    yield from call_evidence(found, calls, mismatch.instance.communicator.label)
    for side in found.sides:
        yield from _sites(side, frames)


def _called_of(mismatch: Mismatch) -> dict[int, CalledOp]:
    """The op in flight as a call, where the calls around it are not known."""
    ops = (*mismatch.instance.ops, *mismatch.instance.finished)
    return {op.global_rank: _called(op) for op in ops}


def _called(op: InFlightOp) -> CalledOp:
    return CalledOp(
        comm_id=op.comm_id, match_seq=op.match_seq, op=op.op, call=op.call, dtype=op.dtype,
        count=op.count, out_count=op.out_count, size_bytes=op.size_bytes, peer=op.peer,
        shape=op.shape,
    )  # fmt: skip


def _sites(side: Sequence[int], frames: Frames) -> Iterator[Evidence]:
    """From where a side came, what work that is, and whether a compiler made the code."""
    rank = next((rank for rank in side if frames.get(rank)), None)
    if rank is None:
        return
    own, ranks = frames[rank], list(side)
    said = [message(codes_calls.CALL_SITE, ranks=ranks, frame=call_site(own))]
    if work := work_in(own):
        name = f"work.{work.work.value}"
        said.append(message(codes_calls.DOES_WORK, ranks=ranks, work=name, frame=work.frame))
    if frame := generated_frame(own):
        said.append(message(codes_calls.GENERATED_CODE, ranks=ranks, frame=frame))
    yield from (Evidence(kind="stack", message=one, global_rank=rank) for one in said)


def _missing(found: Divergence, mismatch: Mismatch, frames: Frames) -> Iterator[Message]:
    if not found.is_decided:
        shifted = {Difference.SKIPPED, Difference.EXTRA} & {one.kind for one in found.alignments}
        code = codes_calls.MISSING_RIGHT_PATH if shifted else codes.MISSING_MAJORITY
        yield message(code, ranks=list(found.wrong))
    told = [op for op in mismatch.instance.ops if op.call]  # of a dump, which may have frames
    if told and not frames:
        yield message(codes_calls.MISSING_CALL_SITES, ranks=sorted(op.global_rank for op in told))


def _actions(cause: Cause, found: Divergence, mismatch: Mismatch) -> Iterator[Message]:
    ranks = list(found.wrong)
    label = mismatch.instance.communicator.label
    name = op_name(mismatch.instance.first_op.op)
    match cause:
        case Cause.EXTRA_COLLECTIVE:
            wrong = found.first[ranks[0]].op if found.first else mismatch.instance.first_op.op
            yield message(codes_calls.CALL_ON_ALL, ranks=ranks, op=op_name(wrong))
        case Cause.ORDER_INVERSION:
            yield message(codes_calls.SAME_ORDER, ranks=ranks)
        case Cause.SHAPE_MISMATCH:
            yield message(codes_calls.COMPARE_SHAPES, ranks=ranks)
        case _:
            pass
    yield message(codes.COMPARE_PATHS, ranks=ranks, op=name, comm=label)
