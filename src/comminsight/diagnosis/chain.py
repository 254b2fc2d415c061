"""The parts every verdict shares: the op it names, the causal chain, the coverage of a hang."""

from __future__ import annotations

from collections.abc import Iterable

from comminsight.diagnosis.presence import Instance, Observed
from comminsight.model.hang import HangEvent, InFlightOp
from comminsight.model.ops import DType, Op
from comminsight.model.ranges import missing_ranks
from comminsight.model.reference import comm_ref, op_ref_text
from comminsight.model.verdict import ChainLevel, ChainLink, Coverage, OpRef

UNKNOWN = "unknown"


def op_name(op: int) -> str:
    """The call's name in torch.distributed."""
    return Op(op).name.lower()


def dtype_name(dtype: int) -> str:
    """The element type's name, "" if unknown."""
    return DType(dtype).name.lower() if dtype else ""


def op_ref(instance: Instance, op: InFlightOp | None = None) -> OpRef:
    """The instance as seen by ``op``, by default the member that entered first."""
    seen = op or instance.first_op
    key, members = instance.key, instance.communicator.members
    return OpRef(
        comm_id=seen.comm_id,
        comm_label=instance.communicator.label,
        op=op_name(seen.op),
        match_seq=seen.match_seq,
        size_bytes=seen.size_bytes,
        dtype=dtype_name(seen.dtype),
        peer=seen.peer if key.is_p2p else -1,
        sender=members[key.source] if key.is_p2p else -1,
        receiver=members[key.target] if key.is_p2p else -1,
        is_replay=key.is_replay,
    )


def hang_chain(
    observed: Observed, instance: Instance | None, ranks: Iterable[int]
) -> tuple[ChainLink, ...]:
    """Job to port; a level without evidence says so. What stopped has no step of its own yet, and
    nothing here names a port: ``whole_chain`` adds what the run knows."""
    named = sorted(ranks)
    hosts = sorted({observed.states[r].host for r in named if r in observed.states} - {""})
    role = comm = op = UNKNOWN
    group = where = ""
    if instance is not None:
        role = instance.communicator.role.value
        comm = instance.communicator.label
        first = instance.first_op
        op = f"{op_name(first.op)} #{instance.key.match_seq}"
        group = comm_ref(first.comm_id)
        where = op_ref_text(first.comm_id, first.op_seq, first.global_rank)
    return (
        ChainLink(ChainLevel.JOB, f"{observed.event.world_size} ranks"),
        ChainLink(ChainLevel.ROLE, role),
        ChainLink(ChainLevel.STEP, UNKNOWN),
        ChainLink(ChainLevel.COMMUNICATOR, comm, group),
        ChainLink(ChainLevel.OP, op, where),
        ChainLink(ChainLevel.RANK, ", ".join(map(str, named)) or UNKNOWN),
        ChainLink(ChainLevel.NODE, ", ".join(hosts) or UNKNOWN),
        ChainLink(ChainLevel.PORT, UNKNOWN),
    )


def hang_coverage(event: HangEvent) -> Coverage:
    """What the event was based on."""
    seen = {state.global_rank for state in event.ranks}
    return Coverage(
        ranks_expected=event.world_size,
        ranks_seen=len(seen),
        ranks_missing=missing_ranks(event.world_size, seen),
        records_lost=sum(state.records_lost for state in event.ranks),
        clock_error_ns=event.clock_error_ns,
    )
