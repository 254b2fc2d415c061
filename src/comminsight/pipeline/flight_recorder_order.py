"""Ops that a rank has skipped, told by the order of its calls against the other ranks'.

In a job whose ranks run one program, groups of one description (all data parallel groups, say)
count alike. A rank that is in an op of another group while it lacks its own op of that description,
which every other rank known to have come so far had called before, has left it out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from comminsight.model.hang import Progress, SkippedOp
from comminsight.pipeline.flight_recorder_calls import Call, RankCalls
from comminsight.pipeline.flight_recorder_groups import JobGroups

MIN_OTHERS = 2
UNTOLD = frozenset({"", "undefined"})

Place = tuple[int, int]  # comm_id, match_seq


def skipped_ops(
    calls: Mapping[int, RankCalls], groups: JobGroups, progress: Sequence[Progress]
) -> Iterator[SkippedOp]:
    """One per rank and op that somebody waits in and that the rank went past."""
    came = {(entry.global_rank, entry.comm_id): entry for entry in progress}
    waiting = _waiting(calls, groups)
    for comm_id, match_seq in sorted({place for places in waiting.values() for place in places}):
        communicator = groups.communicators[comm_id]
        if communicator.desc in UNTOLD:
            continue
        for rank in communicator.members:
            entry = came.get((rank, comm_id))
            if entry is None or not entry.is_current or entry.last_entered != match_seq - 1:
                continue
            n_others = max(
                (
                    _others_before(calls, groups, rank, place, communicator.desc, match_seq)
                    for place in waiting.get(rank, ())
                    if place[0] != comm_id
                ),
                default=0,
            )
            if n_others >= MIN_OTHERS:
                yield SkippedOp(
                    global_rank=rank, comm_id=comm_id, match_seq=match_seq, n_others=n_others
                )


def _waiting(calls: Mapping[int, RankCalls], groups: JobGroups) -> dict[int, list[Place]]:
    """The collectives that each rank is in."""
    found = defaultdict(list)
    for rank, own in calls.items():
        for call in own.collectives:
            comm_id = groups.comm_ids[rank].get(call.pg_id, -1)
            if not call.is_over and comm_id >= 0:
                found[rank].append((comm_id, call.seq))
    return found


def _others_before(
    calls: Mapping[int, RankCalls], groups: JobGroups, rank: int, place: Place, desc: str, seq: int
) -> int:
    """How many other ranks are known to have called op ``seq`` of their group of this description
    before the op at ``place``; 0 where one is known not to have."""
    n_before = 0
    for other, own in calls.items():
        comm_ids = groups.comm_ids[other]
        called = next((c for c in own.collectives if _place(c, comm_ids) == place), None)
        if other == rank or called is None:
            continue
        seqs = [
            call.seq
            for call in own.collectives
            if call.record_id < called.record_id and call.first.desc == desc
        ]
        if not seqs:
            continue
        if max(seqs) != seq:
            return 0
        n_before += 1
    return n_before


def _place(call: Call, comm_ids: Mapping[int, int]) -> Place:
    return comm_ids.get(call.pg_id, -1), call.seq
