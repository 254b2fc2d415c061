"""What calls that differ between ranks show: how many agreed before, what each side passed to the
first one that does not, and what makes the calls of one side out of those of the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from comminsight.analysis.call_alignment import Alignment, Difference, form_of
from comminsight.diagnosis import codes, codes_calls
from comminsight.diagnosis.chain import dtype_name, op_name
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.divergence import Divergence
from comminsight.model.call_history import CalledOp
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause, Evidence, Message


def cause_of_calls(found: Divergence) -> Cause | None:
    """What differs in the first call that does."""
    if found.first is None:
        return None
    calls = found.first.values()
    if len({call.op for call in calls}) > 1:
        return Cause.OP_TYPE_MISMATCH
    if len({(form_of(call.call), call.dtype, call.count) for call in calls}) > 1 and (
        len({form_of(call.call) for call in calls} - {""}) > 1
    ):
        return Cause.OP_TYPE_MISMATCH
    if len({call.dtype for call in calls}) > 1:
        return Cause.DTYPE_MISMATCH
    return Cause.ROOT_MISMATCH if len({call.peer for call in calls}) > 1 else Cause.SHAPE_MISMATCH


def call_evidence(
    found: Divergence, calls: Mapping[int, CalledOp], label: str
) -> Iterator[Evidence]:
    """``calls`` are those that differ, by rank; ``label`` is that of their communicator."""
    comm_id = calls[found.sides[0][0]].comm_id
    if found.n_alike:
        said = message(codes_calls.COMMON_PREFIX, comm=label, n_ops=found.n_alike)
        yield Evidence(kind="record", message=said, comm_id=comm_id)
    for side in found.sides:
        yield _signature(side, calls[side[0]])
    yield from (Evidence(kind="record", message=said) for said in _differences(found, calls))
    if found.pattern is not None:
        said = message(
            codes_calls.PATTERN, ranks=list(found.wrong), period=found.pattern.period,
            n_repeats=found.pattern.n_repeats,
        )  # fmt: skip
        yield Evidence(kind="record", message=said, comm_id=comm_id)


def _signature(side: Sequence[int], call: CalledOp) -> Evidence:
    said = message(
        codes.SIGNATURE, ranks=list(side), op=op_name(call.op), size_bytes=call.size_bytes,
        dtype=dtype_name(call.dtype), root=call.peer,
    )  # fmt: skip
    return Evidence(
        kind="record", message=said, global_rank=side[0], comm_id=call.comm_id,
        match_seq=call.match_seq,
    )  # fmt: skip


def _differences(found: Divergence, calls: Mapping[int, CalledOp]) -> Iterator[Message]:
    right = calls[found.sides[0][0]]
    for side in found.sides[1:]:
        own = calls[side[0]]
        if own.call != right.call and own.op == right.op and own.op != Op.UNKNOWN:
            for ranks, call in ((found.sides[0], right), (side, own)):
                yield message(codes_calls.CALL_FORM, ranks=list(ranks), call=call.call)
        if own.op == right.op:
            yield from shape_difference(side, own.shape, found.sides[0], right.shape)
    for side, aligned in zip(found.sides[1:], found.alignments, strict=False):
        yield from _alignment(side, aligned)


def shape_difference(
    ranks: Sequence[int], shape: Sequence[int], others: Sequence[int], other_shape: Sequence[int]
) -> Iterator[Message]:
    """The one extent in which two shapes of the same number of dimensions differ."""
    pairs = list(zip(shape, other_shape, strict=False))
    unlike = [place for place, (one, other) in enumerate(pairs) if one != other]
    if len(shape) == len(other_shape) and len(unlike) == 1:
        one, other = pairs[unlike[0]]
        yield message(
            codes_calls.SHAPE_DIFFERS, ranks=list(ranks), others=list(others),
            shape=_extents(shape), other_shape=_extents(other_shape), dim=unlike[0],
            by=abs(one - other),
        )  # fmt: skip


def _extents(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _alignment(side: Sequence[int], one: Alignment) -> Iterator[Message]:
    ranks, n_ops, n_matched = list(side), one.n_ops, one.n_matched
    match one.kind:
        case Difference.SKIPPED:
            yield message(codes_calls.SKIPPED_CALLS, ranks=ranks, n_ops=n_ops, n_matched=n_matched)
        case Difference.EXTRA:
            yield message(codes_calls.EXTRA_CALLS, ranks=ranks, n_ops=n_ops, n_matched=n_matched)
        case Difference.PERMUTED:
            yield message(codes_calls.PERMUTED_CALLS, ranks=ranks, n_ops=n_ops)
        case _:
            return
