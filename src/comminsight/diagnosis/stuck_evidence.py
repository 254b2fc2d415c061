"""What a hang verdict says of NCCL ops in flight: how far each rank's came, and what was masked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from comminsight.diagnosis import codes
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.presence import Instance, Observed
from comminsight.diagnosis.stuck_op import (
    IN_KERNEL,
    Stage,
    by_stage,
    running_channels,
    stage_of,
    wait_sides,
)
from comminsight.model.hang import InFlightOp
from comminsight.model.ops import SlotFlag
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Evidence, Message

MAX_PER_KIND = 4


def stage_evidence(instance: Instance) -> Iterator[Evidence]:
    """One line for the ranks of each stage, and the channels that still run where some do not."""
    found = by_stage(instance.ops)
    found.pop(Stage.UNTOLD, None)
    for stage, ops in found.items():
        ranks = sorted(op.global_rank for op in ops)
        said = message(
            codes.STAGE, ranks=ranks, op=op_name(ops[0].op), comm=instance.communicator.label,
            match_seq=ops[0].match_seq, stage=f"stage.{stage}",
        )  # fmt: skip
        yield _evidence(said, ops[0] if len(ops) == 1 else None)
    for op in found.get(Stage.PARTLY_STOPPED, [])[:MAX_PER_KIND]:
        left = list(running_channels(op))
        said = message(codes.CHANNELS, rank=op.global_rank, channels=left, n_channels=op.n_channels)
        yield _evidence(said, op)


def pending_evidence(observed: Observed) -> Iterator[Evidence]:
    """Whom the fan-outs in flight wait for, those that most ranks wait for first; it names them,
    and accuses nobody."""
    found: dict[tuple[int, tuple[int, ...]], list[InFlightOp]] = {}
    for op in observed.peerless:
        if op.pending_peers and op.comm_id in observed.communicators:
            peers = pending_ranks(op, observed.communicators[op.comm_id])
            found.setdefault((op.comm_id, tuple(peers)), []).append(op)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    for (comm_id, waited_for), ops in ordered[:MAX_PER_KIND]:
        said = message(
            codes.PENDING, ranks=_ranks(ops), comm=observed.communicators[comm_id].label,
            peers=list(waited_for), age_ns=max(op.age_ns for op in ops),
        )  # fmt: skip
        yield _evidence(said, ops[0] if len(ops) == 1 else None)


def pending_nowhere(observed: Observed) -> list[int]:
    """Ranks that fan-outs wait for and that are in no op of that communicator themselves, those
    that most wait for first: where to look, and no proof."""
    inside = {(op.global_rank, op.comm_id) for op in observed.event.in_flight}
    counts: Counter[int] = Counter()
    for op in observed.peerless:
        if op.comm_id in observed.communicators:
            peers = pending_ranks(op, observed.communicators[op.comm_id])
            counts.update(peer for peer in peers if (peer, op.comm_id) not in inside)
    return [rank for rank, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def pending_ranks(op: InFlightOp, communicator: Communicator) -> list[int]:
    """Global ranks of the unfinished peers as far as they are known, ascending; in a large
    communicator some of them may be done: one bit stands for several ranks."""
    places = {peer + i for peer in op.pending_peers for i in range(op.pending_span)}
    members = communicator.members
    named = {members[place] for place in places if place < len(members)}
    return sorted(rank for rank in named if rank >= 0 and rank != op.global_rank)


def missing_of_ops(observed: Observed, instance: Instance | None) -> Iterator[Message]:
    """What the masks left out that would have told more."""
    in_flight = observed.event.in_flight
    if ranks := _ranks(op for op in in_flight if op.slot_flags & SlotFlag.NO_KERNEL_EVENTS):
        yield message(codes.MISSING_KERNEL_EVENTS, ranks=ranks)
    if instance is not None and instance.is_complete:
        running = [op for op in instance.ops if stage_of(op) in IN_KERNEL]
        if ranks := _ranks(op for op in running if wait_sides(op) is None):
            yield message(codes.MISSING_NETWORK_EVENTS, ranks=ranks)
    if ranks := _ranks(observed.peerless):
        yield message(codes.MISSING_PEERS, ranks=ranks)


def _ranks(ops: Iterable[InFlightOp]) -> list[int]:
    return sorted({op.global_rank for op in ops})


def _evidence(said: Message, op: InFlightOp | None) -> Evidence:
    if op is None:
        return Evidence(kind="record", message=said)
    return Evidence(
        kind="record", message=said, global_rank=op.global_rank, comm_id=op.comm_id,
        op_seq=op.op_seq, match_seq=op.match_seq,
    )  # fmt: skip
