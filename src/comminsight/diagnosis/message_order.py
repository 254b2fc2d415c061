"""Sends of one pair that the receiver takes in another order, told by their sizes.

A message carries no name: the nth receive takes the nth send. Where a pair has several in flight,
their sizes show whether both sides count alike. Equal sizes show nothing, and that is said.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.codes import message
from comminsight.model.hang import HangEvent, InFlightOp
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Backend, Op, RecordKind
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, Confidence, Evidence, Verdict

OPEN_CAUSES = frozenset({Cause.ALL_PRESENT_STUCK, Cause.P2P_CYCLE, Cause.NO_VERDICT})


class Line(NamedTuple):
    """One pair and direction; global ranks."""

    comm_id: int
    sender: int
    receiver: int


def with_message_order(verdict: Verdict, job: JobEvidence) -> Verdict:
    """As transfers that do not match, where the same sizes are sent in another order than they are
    received; elsewhere with the transfers that nothing tells apart."""
    if job.hang is None or verdict.cause not in OPEN_CAUSES:
        return verdict
    lines = _lines(job.hang, {one.comm_id: one for one in job.communicators})
    swapped = [(line, *ops) for line, ops in lines.items() if _is_swapped(*ops)]
    if swapped:
        return _unmatched(verdict, swapped)
    alike = [one for line, ops in lines.items() for one in _ambiguous(line, *ops)]
    ranks = sorted({rank for line, ops in lines.items() if any(_ambiguous(line, *ops))
                    for rank in (line.sender, line.receiver)})  # fmt: skip
    if not alike:
        return verdict
    return replace(
        verdict,
        evidence=(*verdict.evidence, *alike),
        missing=(*verdict.missing, message(codes.MISSING_MATCH, ranks=ranks)),
    )


def _lines(
    event: HangEvent, by_id: Mapping[int, Communicator]
) -> dict[Line, tuple[list[InFlightOp], list[InFlightOp]]]:
    """The open sends and receives of each line, in the order of the calls."""
    found: dict[Line, tuple[list[InFlightOp], list[InFlightOp]]] = defaultdict(lambda: ([], []))
    for op in sorted(event.in_flight, key=lambda op: (op.match_seq, op.start_ns)):
        members = by_id[op.comm_id].members if op.comm_id in by_id else ()
        if op.kind != RecordKind.P2P or op.is_peerless or op.peer >= len(members):
            continue
        if by_id[op.comm_id].backend is Backend.GLOO:
            continue  # its messages have tags, and may be taken in any order
        peer, is_send = members[op.peer], op.op == Op.SEND
        ends = (op.global_rank, peer) if is_send else (peer, op.global_rank)
        found[Line(op.comm_id, *ends)][not is_send].append(op)
    return found


def _sizes(ops: list[InFlightOp]) -> list[int]:
    return [op.size_bytes for op in ops]


def _is_swapped(sends: list[InFlightOp], receives: list[InFlightOp]) -> bool:
    """True for the same sizes in another order: a number less or more would be another fault, or a
    count that began elsewhere."""
    sent, received = _sizes(sends), _sizes(receives)
    return sent != received and sorted(sent) == sorted(received) and 0 not in sent


def _unmatched(
    verdict: Verdict, swapped: list[tuple[Line, list[InFlightOp], list[InFlightOp]]]
) -> Verdict:
    ranks = sorted({rank for line, _, _ in swapped for rank in (line.sender, line.receiver)})
    rows = [row for line, sends, receives in swapped for row in _rows(line, sends, receives)]
    return replace(
        verdict,
        cause=Cause.P2P_UNMATCHED,
        confidence=Confidence.MEDIUM,
        culprits=tuple(ranks),
        victims=tuple(rank for rank in verdict.victims if rank not in ranks),
        evidence=(*rows, *verdict.evidence),
        next_actions=(message(codes.TAG_MESSAGES, ranks=ranks),),
    )


def _rows(line: Line, sends: list[InFlightOp], receives: list[InFlightOp]) -> Iterator[Evidence]:
    for rank, peer, op, ops in (
        (line.sender, line.receiver, "send", sends),
        (line.receiver, line.sender, "recv", receives),
    ):
        said = message(codes.P2P_SIZES, rank=rank, op=op, peer=peer, sizes_bytes=_sizes(ops))
        yield Evidence(kind="record", message=said, global_rank=rank, comm_id=line.comm_id)


def _ambiguous(
    line: Line, sends: list[InFlightOp], receives: list[InFlightOp]
) -> Iterator[Evidence]:
    """Sizes that are open more than once on both sides of a line."""
    sent, received = Counter(_sizes(sends)), Counter(_sizes(receives))
    for size_bytes, n in sorted(sent.items()):
        if min(n, received[size_bytes]) > 1:
            said = message(
                codes.AMBIGUOUS, sender=line.sender, receiver=line.receiver,
                size_bytes=size_bytes, n=n,
            )  # fmt: skip
            yield Evidence(kind="record", message=said, comm_id=line.comm_id)
