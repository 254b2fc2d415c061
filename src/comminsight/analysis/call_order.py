"""Ops that a rank went past, told by the order of its calls against that of the other ranks.

Ranks run one program: groups of one description (all data parallel groups, say) count alike, and
their ops are called in one order. Of a rank that is in op *q* and has not called op *p*, which
others are in, the others tell whether *p* comes first: they called it before *q*, or have called it
and not yet *q*. Only a rank in its right place there is asked: its last op of either description is
*p*, or the one before *q*. One that called *q* without *p* says the opposite, and then nothing is
told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from comminsight.model.hang import Progress, SkippedOp
from comminsight.model.topology import Communicator

MIN_OTHERS = 2
UNTOLD = frozenset({"", "undefined"})


class OrderedCall(NamedTuple):
    """A collective in the order of a rank's calls; ``is_open`` while it is not over."""

    comm_id: int
    match_seq: int
    is_open: bool


class Place(NamedTuple):
    """An op: number ``match_seq`` of a communicator, of groups described by ``desc``."""

    comm_id: int
    match_seq: int
    desc: str


@dataclass(frozen=True, slots=True)
class _Line:
    """The calls of one rank on groups of one description: when (its own count), and their
    numbers."""

    at: list[int]
    numbers: list[int]

    def when(self, number: int) -> int:
        """When op ``number`` was called; -1 when it is not among these."""
        place = bisect_left(self.numbers, number)
        is_there = place < len(self.numbers) and self.numbers[place] == number
        return self.at[place] if is_there else -1

    @property
    def last(self) -> int:
        """The number of the last call, 0 without any."""
        return self.numbers[-1] if self.numbers else 0


Lines = dict[str, _Line]


def skipped_ops(
    calls: Mapping[int, Sequence[OrderedCall]],
    communicators: Sequence[Communicator],
    progress: Sequence[Progress],
) -> Iterator[SkippedOp]:
    """One per rank and op that somebody is in and that the rank went past, where at least two other
    ranks, and most of the members of the op that it is in instead, tell that it comes first.

    ``calls`` are by global rank, ``progress`` says who has not entered what.
    """
    by_id = {one.comm_id: one for one in communicators if one.desc not in UNTOLD}
    came = {(p.global_rank, p.comm_id): p for p in progress if p.peer < 0 and not p.is_replay}
    lines = {rank: _lines(own, by_id) for rank, own in calls.items()}
    inside = {rank: _open_places(own, by_id) for rank, own in calls.items()}
    for missed in sorted({place for places in inside.values() for place in places}):
        for rank in by_id[missed.comm_id].members:
            entry = came.get((rank, missed.comm_id))
            is_next = entry is not None and entry.last_entered == missed.match_seq - 1
            if entry is None or not entry.is_current or not is_next:
                continue
            counts = (
                _tellers(lines, rank, missed, place, by_id[place.comm_id].members)
                for place in inside.get(rank, ())
                if place.comm_id != missed.comm_id
            )
            if (n_others := max(counts, default=0)) >= MIN_OTHERS:
                yield SkippedOp(
                    global_rank=rank, comm_id=missed.comm_id, match_seq=missed.match_seq,
                    n_others=n_others,
                )  # fmt: skip


def _lines(calls: Sequence[OrderedCall], by_id: Mapping[int, Communicator]) -> Lines:
    found: Lines = defaultdict(lambda: _Line([], []))
    for at, call in enumerate(calls):
        if call.comm_id in by_id:
            line = found[by_id[call.comm_id].desc]
            line.at.append(at)
            line.numbers.append(call.match_seq)
    return dict(found)


def _open_places(
    calls: Sequence[OrderedCall], by_id: Mapping[int, Communicator]
) -> tuple[Place, ...]:
    return tuple(
        Place(call.comm_id, call.match_seq, by_id[call.comm_id].desc)
        for call in calls
        if call.is_open and call.comm_id in by_id
    )


def _tellers(
    lines: Mapping[int, Lines], rank: int, missed: Place, inside: Place, members: Sequence[int]
) -> int:
    """How many other ranks tell that ``missed`` comes before ``inside``; 0 when one contradicts, or
    when they are not most of the others in ``inside``."""
    told = {other: _tells(own, missed, inside) for other, own in lines.items() if other != rank}
    n_telling = sum(said is True for said in told.values())
    n_members = sum(told.get(member) is True for member in members)
    is_most = 2 * n_members > len(members) - 1
    return n_telling if is_most and False not in told.values() else 0


def _tells(own: Lines, missed: Place, inside: Place) -> bool | None:
    """Whether a rank calls ``missed`` before ``inside``; None when it does not tell."""
    one, other = own.get(missed.desc), own.get(inside.desc)
    if one is None or other is None or missed.desc == inside.desc:
        return None
    missed_at, inside_at = one.when(missed.match_seq), other.when(inside.match_seq)
    if missed_at >= 0 and inside_at >= 0:
        return missed_at < inside_at
    if missed_at >= 0:
        is_next = (one.last, other.last) == (missed.match_seq, inside.match_seq - 1)
        return True if is_next else None
    return False if inside_at >= 0 and one.last < missed.match_seq else None
