"""Ops that a rank has skipped, told by the order of its calls against the other ranks'.

In a job whose ranks run one program, groups of one description (all data parallel groups, say)
count alike. A rank that is in an op of another group while it lacks its own op of that description,
which every other rank known to have come so far had called before, has left it out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from comminsight.model.hang import Progress, SkippedOp
from comminsight.pipeline.flight_recorder_calls import RankCalls
from comminsight.pipeline.flight_recorder_groups import JobGroups

MIN_OTHERS = 2
UNTOLD = frozenset({"", "undefined"})

Place = tuple[int, int]  # comm_id, match_seq


@dataclass(frozen=True, slots=True)
class _Order:
    """When each rank called what, in record numbers of its own. ``places[place][rank]``;
    ``lines[rank][desc]`` are the calls on groups of a description: their records, their numbers."""

    places: Mapping[Place, Mapping[int, int]]
    lines: Mapping[int, Mapping[str, tuple[list[int], list[int]]]]

    def last_before(self, rank: int, desc: str, record_id: int) -> int:
        """Number of the last op on a group of this description before a record; 0 if not known."""
        records, seqs = self.lines[rank].get(desc, ([], []))
        at = bisect_left(records, record_id)
        return seqs[at - 1] if at else 0


def skipped_ops(
    calls: Mapping[int, RankCalls], groups: JobGroups, progress: Sequence[Progress]
) -> Iterator[SkippedOp]:
    """One per rank and op that somebody waits in and that the rank went past."""
    came = {(entry.global_rank, entry.comm_id): entry for entry in progress}
    order = _order(calls, groups)
    waiting = _waiting(calls, groups)
    for comm_id, match_seq in sorted({place for places in waiting.values() for place in places}):
        communicator = groups.communicators[comm_id]
        if communicator.desc in UNTOLD:
            continue
        for rank in communicator.members:
            entry = came.get((rank, comm_id))
            if entry is None or not entry.is_current or entry.last_entered != match_seq - 1:
                continue
            others = (
                _others_before(order, rank, place, communicator.desc, match_seq)
                for place in waiting.get(rank, ())
                if place[0] != comm_id
            )
            if (n_others := max(others, default=0)) >= MIN_OTHERS:
                yield SkippedOp(
                    global_rank=rank, comm_id=comm_id, match_seq=match_seq, n_others=n_others
                )


def _order(calls: Mapping[int, RankCalls], groups: JobGroups) -> _Order:
    places: dict[Place, dict[int, int]] = defaultdict(dict)
    lines: dict[int, dict[str, tuple[list[int], list[int]]]] = {}
    for rank, own in calls.items():
        comm_ids = groups.comm_ids[rank]
        line = lines[rank] = defaultdict(lambda: ([], []))
        for call in own.collectives:
            places[comm_ids.get(call.pg_id, -1), call.seq][rank] = call.record_id
            records, seqs = line[call.first.desc]
            records.append(call.record_id)
            seqs.append(call.seq)
    return _Order(places, lines)


def _waiting(calls: Mapping[int, RankCalls], groups: JobGroups) -> dict[int, list[Place]]:
    """The collectives that each rank is in."""
    found = defaultdict(list)
    for rank, own in calls.items():
        for call in own.collectives:
            comm_id = groups.comm_ids[rank].get(call.pg_id, -1)
            if not call.is_over and comm_id >= 0:
                found[rank].append((comm_id, call.seq))
    return found


def _others_before(order: _Order, rank: int, place: Place, desc: str, seq: int) -> int:
    """How many other ranks are known to have called op ``seq`` of their group of this description
    before the op at ``place``; 0 where one is known not to have."""
    lasts = [
        order.last_before(other, desc, record_id)
        for other, record_id in order.places[place].items()
        if other != rank
    ]
    known = [last for last in lasts if last]
    return len(known) if all(last == seq for last in known) else 0
