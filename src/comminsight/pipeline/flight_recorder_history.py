"""What each rank called before and since, from its dump: what is compared where calls disagree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from comminsight.model.call_history import CalledOp, CallHistory
from comminsight.pipeline.flight_recorder_calls import Call, RankCalls

MAX_CALLS = 200_000  # of all ranks: what is compared are a few steps
MIN_CALLS = 64  # of a rank


def call_histories(
    calls: Mapping[int, RankCalls],
    comm_id: Callable[[int, int], int],
    misnumbered: Collection[int],
) -> tuple[CallHistory, ...]:
    """The last collectives of each rank; ``comm_id(rank, pg_id)`` is negative where it is unknown,
    and those of ``misnumbered`` communicators are left out: their numbers meet no others."""
    n_kept = max(MIN_CALLS, MAX_CALLS // max(1, len(calls)))
    found = []
    for rank, own in calls.items():
        places = {pg_id: comm_id(rank, pg_id) for pg_id in own.reached}
        told = {pg for pg, place in places.items() if place >= 0 and place not in misnumbered}
        known = [(places[call.pg_id], call) for call in own.collectives if call.pg_id in told]
        made = tuple(_called(place, call) for place, call in known[-n_kept:])
        n_before = own.n_lost + max(0, len(known) - n_kept) if own.is_ring else -1
        found.append(CallHistory(global_rank=rank, calls=made, n_before=n_before))
    return tuple(found)


def _called(comm_id: int, call: Call) -> CalledOp:
    entry, entries = call.first, call.entries
    if len(entries) == 1:
        return CalledOp(
            comm_id=comm_id, match_seq=call.seq, op=call.op, call=entry.call, dtype=entry.dtype,
            count=entry.count, out_count=entry.n_out, size_bytes=entry.size_bytes,
            shape=entry.shape,
        )  # fmt: skip
    is_alike = len({one.dtype for one in entries}) == 1
    return CalledOp(
        comm_id=comm_id,
        match_seq=call.seq,
        op=call.op,
        call=entry.call,
        dtype=entry.dtype if is_alike else 0,
        count=sum(one.count for one in entries),
        out_count=sum(one.n_out for one in entries),
        size_bytes=sum(one.size_bytes for one in entries),
        shape=entry.shape,
    )
