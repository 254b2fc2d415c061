"""Sends and receives that are over though neither side's entry says so.

Some versions never mark members of a batch complete. Where both halves of a message are there, and
both ranks have since called something that has ended, the message does not hold up either of them.
A half alone may still wait for the other, whatever its rank did meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from comminsight.model.hang import InFlightOp
from comminsight.model.ops import Op, RecordKind
from comminsight.pipeline.flight_recorder_calls import RankCalls

PairKey = tuple[int, int, int, int]  # comm_id, source, target, match_seq


def without_past_pairs(
    in_flight: Sequence[InFlightOp],
    calls: Mapping[int, RankCalls],
    members: Callable[[int], tuple[int, ...]],
) -> list[InFlightOp]:
    """The ops without both halves of such messages; ``members`` are by ``comm_id``."""
    messages = [op for op in in_flight if op.kind == RecordKind.P2P]
    newest_ns = {rank: _newest_over_ns(calls[rank]) for rank in {op.global_rank for op in messages}}
    halves: dict[PairKey, list[InFlightOp]] = defaultdict(list)
    for op in messages:
        is_past = op.start_ns < newest_ns[op.global_rank]
        if is_past and op.comm_id >= 0 and not op.is_peerless:
            halves[_key(op, members(op.comm_id))].append(op)
    past = {id(op) for both in halves.values() if len(both) == 2 for op in both}
    return [op for op in in_flight if id(op) not in past]


def _newest_over_ns(own: RankCalls) -> int:
    """When the newest call was made that is over; 0 without one."""
    both = (call for call in (*own.collectives, *own.p2p) if call.is_over)
    return max((call.first.created_ns for call in both), default=0)


def _key(op: InFlightOp, members: tuple[int, ...]) -> PairKey:
    me = members.index(op.global_rank)
    source, target = (me, op.peer) if op.op == Op.SEND else (op.peer, me)
    return op.comm_id, source, target, op.match_seq
