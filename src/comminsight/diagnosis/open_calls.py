"""In which order ranks called what they have open: who deviates, and the lists to compare."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.presence import Instance, Observed
from comminsight.diagnosis.waitfor import CycleEdge
from comminsight.model.hang import InFlightOp
from comminsight.model.ops import Op
from comminsight.model.verdict import Evidence

MAX_RANKS = 8
MAX_CALLS = 8


def out_of_order(cycle: Sequence[CycleEdge]) -> tuple[int, ...]:
    """The ranks that called the two collectives of a circle in another order than most others did,
    ascending; () where the circle is of more, or no order has a majority of two ranks or more.

    Counted are only ranks that have both open: one that has called a single op has no order yet.
    """
    instances = {edge.instance.key: edge.instance for edge in cycle}
    if len(instances) != 2 or any(key.is_p2p for key in instances):
        return ()
    first, second = instances.values()
    started = [_starts(instance) for instance in (first, second)]
    camps: dict[bool, list[int]] = defaultdict(list)
    for rank in started[0].keys() & started[1].keys():
        if (lead_ns := started[1][rank] - started[0][rank]) != 0:
            camps[lead_ns > 0].append(rank)
    few, many = sorted((camps[True], camps[False]), key=len)
    return tuple(sorted(few)) if few and len(many) >= max(2, len(few) + 1) else ()


def _starts(instance: Instance) -> dict[int, int]:
    return {op.global_rank: op.start_ns for op in instance.ops}


def call_orders(observed: Observed, ranks: Iterable[int]) -> Iterator[Evidence]:
    """Per rank the calls that it has open, oldest first: lists that can be laid side by side."""
    by_rank: dict[int, list[InFlightOp]] = defaultdict(list)
    for op in observed.event.in_flight:
        by_rank[op.global_rank].append(op)
    for rank in sorted(ranks)[:MAX_RANKS]:
        own = sorted(by_rank[rank], key=lambda op: (op.start_ns, op.op_seq))
        if len(own) > 1:
            calls = [_call(observed, op) for op in own[:MAX_CALLS]]
            said = message(codes.CALL_ORDER, rank=rank, calls=calls)
            yield Evidence(kind="record", message=said, global_rank=rank)


def _call(observed: Observed, op: InFlightOp) -> str:
    """A call in short: ``send->1``, ``recv<-0``, ``all_reduce #7 (DP mesh_dp#3)``."""
    communicator = observed.communicators.get(op.comm_id)
    label = communicator.label if communicator is not None else "?"
    if op.op not in {Op.SEND, Op.RECV}:
        return f"{op_name(op.op)} #{op.match_seq} ({label})"
    members = communicator.members if communicator is not None else ()
    peer = str(members[op.peer]) if 0 <= op.peer < len(members) else "?"
    return f"{op_name(op.op)}{'->' if op.op == Op.SEND else '<-'}{peer}"
