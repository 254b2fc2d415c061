"""Numbers for sends and receives, which have none in a dump that two ranks share.

Where both ends of a pair left all their calls, from the first on, the nth send of a direction is
the nth receive. Elsewhere the calls in flight are numbered from the oldest on: where a job stands
still, what is over on one side is over on the other, but for a message that its sender is rid of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from comminsight.model.hang import InFlightOp, Progress
from comminsight.model.ops import Op, RecordKind
from comminsight.pipeline.flight_recorder_calls import RankCalls

COUNTERPART = {Op.SEND: Op.RECV, Op.RECV: Op.SEND}

Stream = tuple[int, int, int, int]  # global rank, comm_id, peer (comm-local), Op
CommId = Callable[[int, int], int]  # of a rank's own number of a group
Members = Callable[[int], tuple[int, ...]]


@dataclass(frozen=True)
class StreamKnowledge:
    """What the dumps tell of sends and receives. ``over`` counts the calls of each stream that is
    whole at both ends; ``whole`` are ranks that left all their calls, ``idle`` those in no call,
    ``unseen`` those that may be in a call without an entry."""

    over: Counter[Stream]
    whole: frozenset[int]
    idle: frozenset[int]
    unseen: frozenset[int]

    def is_told(self, rank: int, other: int, n_open: int) -> bool:
        """True where it is known which call of the stream is the rank's last: a rank that is in a
        call of another stream may have been rid of a message that its partner still waits for."""
        if rank in self.unseen:
            return False
        return n_open > 0 or rank in self.idle or {rank, other} <= self.whole


def over_before(
    calls: Mapping[int, RankCalls], comm_id: CommId, members: Members
) -> Counter[Stream]:
    """How many calls of each stream are over; only of streams that are whole at both ends."""
    found: Counter[Stream] = Counter()
    for rank, own in calls.items():
        for call in own.p2p if own.is_whole else ():
            place = comm_id(rank, call.pg_id)
            peer = _named(members(place) if place >= 0 else (), call.first.peer)
            if call.is_over and peer in calls and calls[peer].is_whole:
                found[rank, place, call.first.peer, int(call.op)] += 1
    return found


def p2p_progress(
    in_flight: Iterable[InFlightOp], known: StreamKnowledge, ranks: Collection[int],
    members: Members,
) -> list[Progress]:  # fmt: skip
    """A stream per pair and direction that anybody is in, at both its ends where they are known."""
    entered: Counter[Stream] = Counter()
    for op in in_flight:
        if op.comm_id < 0 or op.kind != RecordKind.P2P or op.is_peerless:
            continue
        named = members(op.comm_id)
        entered[op.global_rank, op.comm_id, op.peer, op.op] += 1
        if op.peer < len(named) and named[op.peer] in ranks:
            place = named.index(op.global_rank)
            entered[named[op.peer], op.comm_id, place, COUNTERPART[Op(op.op)]] += 0
    return [
        Progress(
            global_rank=rank, comm_id=comm_id, last_entered=known.over[stream] + n,
            last_done=known.over[stream], peer=peer, direction=direction,
            is_current=known.is_told(rank, _named(members(comm_id), peer), n),
        )
        for stream, n in entered.items()
        for rank, comm_id, peer, direction in (stream,)
    ]  # fmt: skip


def only_awaited_in_messages(
    in_flight: Iterable[InFlightOp], ranks: frozenset[int], members: Members
) -> frozenset[int]:
    """Those of ``ranks`` that others receive from, in groups of which nobody is in a collective."""
    awaited, called = set(), set()
    for op in in_flight:
        named = members(op.comm_id) if op.comm_id >= 0 else ()
        if op.kind != RecordKind.P2P:
            called |= {*named}
        elif op.op == Op.RECV:
            awaited.add(_named(named, op.peer))
    return frozenset(ranks & awaited - called)


def _named(members: tuple[int, ...], peer: int) -> int:
    """The global rank at a place; -1 where there is none."""
    return members[peer] if 0 <= peer < len(members) else -1
