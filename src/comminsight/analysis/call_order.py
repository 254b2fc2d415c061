"""Ops that a rank went past, told by the order of its calls against that of the other ranks.

Ranks run one program: ops on groups of one description (all data parallel groups, say) count alike,
and so do messages between the same two places of such groups. They are called in one order. Of a
rank that is in op *q* and has not called the collective *p*, which others are in, the others tell
whether *p* comes first: they called it before *q*, or have called it and not yet *q*. Only a rank
in its right place there is asked: of *q*'s kind it last called the one before *q*, and of *p*'s
kind *p*, or more since. One that called *q* without *p* says the opposite, and then nothing is
told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from comminsight.model.hang import Progress, SkippedOp
from comminsight.model.topology import Communicator

MIN_OTHERS = 2
UNTOLD = frozenset({"", "undefined"})


class OrderedCall(msgspec.Struct, frozen=True, gc=False):
    """An op in the order of a rank's calls; ``is_open`` while it is not over. ``source`` and
    ``target`` (comm-local) only for messages."""

    comm_id: int
    match_seq: int
    is_open: bool
    source: int = -1
    target: int = -1


class Kind(NamedTuple):
    """What counts alike on all ranks: groups of a description, and two places in them."""

    desc: str
    source: int
    target: int


class Place(NamedTuple):
    """An op: number ``match_seq`` of its kind in a communicator."""

    comm_id: int
    match_seq: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class _Line:
    """The calls of one rank of one kind: when (its own count), and their numbers."""

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


Lines = dict[Kind, _Line]
Calls = Mapping[int, Sequence[OrderedCall]]


def skipped_ops(
    calls: Calls, communicators: Sequence[Communicator], progress: Sequence[Progress]
) -> Iterator[SkippedOp]:
    """One per rank and collective that somebody is in and that the rank went past, where at least
    two other ranks, and most of the members of a collective that it is in instead, tell that it
    comes first.

    ``calls`` are by global rank, ``progress`` says who has not entered what.
    """
    by_id = {one.comm_id: one for one in communicators if one.desc not in UNTOLD}
    came = {(p.global_rank, p.comm_id): p for p in progress if p.peer < 0 and not p.is_replay}
    inside = {rank: _open_places(own, by_id) for rank, own in calls.items()}
    open_places = {place for places in inside.values() for place in places}
    if len({place.comm_id for place in open_places}) < 2:
        return
    said = Said({rank: _lines(own, by_id) for rank, own in calls.items()})
    for missed in sorted(open_places):
        for rank in by_id[missed.comm_id].members if missed.kind.source < 0 else ():
            entry = came.get((rank, missed.comm_id))
            is_next = entry is not None and entry.last_entered == missed.match_seq - 1
            if entry is None or not entry.is_current or not is_next:
                continue
            counts = (
                _tellers(said, rank, missed, place, by_id[place.comm_id].members)
                for place in inside.get(rank, ())
                if place.comm_id != missed.comm_id
            )
            if (n_others := max(counts, default=0)) >= MIN_OTHERS:
                yield SkippedOp(
                    global_rank=rank, comm_id=missed.comm_id, match_seq=missed.match_seq,
                    n_others=n_others,
                )  # fmt: skip


def _kind(call: OrderedCall, by_id: Mapping[int, Communicator]) -> Kind:
    return Kind(by_id[call.comm_id].desc, call.source, call.target)


def _lines(calls: Sequence[OrderedCall], by_id: Mapping[int, Communicator]) -> Lines:
    """By kind; without those of which the rank has two groups: their numbers are no one row."""
    found: Lines = {}
    mixed: set[Kind] = set()
    of_stream: dict[tuple[int, int, int], _Line] = {}
    for at, call in enumerate(calls):
        stream = call.comm_id, call.source, call.target
        if (line := of_stream.get(stream)) is None:
            if call.comm_id not in by_id:
                continue
            if (kind := _kind(call, by_id)) in found:
                mixed.add(kind)
            line = of_stream[stream] = found.setdefault(kind, _Line([], []))
        line.at.append(at)
        line.numbers.append(call.match_seq)
    return {kind: line for kind, line in found.items() if kind not in mixed}


def _open_places(
    calls: Sequence[OrderedCall], by_id: Mapping[int, Communicator]
) -> tuple[Place, ...]:
    return tuple(
        Place(call.comm_id, call.match_seq, _kind(call, by_id))
        for call in calls
        if call.is_open and call.comm_id in by_id
    )


def _tellers(said: Said, rank: int, missed: Place, inside: Place, members: Sequence[int]) -> int:
    """How many other ranks tell that ``missed`` comes before ``inside``; 0 when one contradicts.

    Of a message its other end is not asked: it may be the one that is wrong. Of a collective most
    of the other members must tell.
    """
    before, behind = said.of(missed, inside)
    is_message = inside.kind.source >= 0
    unasked = {rank, *members} if is_message else {rank}
    if len(behind) > len(unasked & behind):
        return 0
    is_most = is_message or 2 * len(before.intersection(members) - unasked) > len(members) - 1
    return len(before) - len(unasked & before) if is_most else 0


@dataclass(frozen=True, slots=True)
class Said:
    """What each rank tells of two places; asked once for all of them."""

    lines: Mapping[int, Lines]
    _known: dict[tuple[Place, Place], tuple[set[int], set[int]]] = field(default_factory=dict)

    def of(self, missed: Place, inside: Place) -> tuple[set[int], set[int]]:
        """Ranks that tell that ``missed`` comes before ``inside``, and those that contradict."""
        if (found := self._known.get((missed, inside))) is None:
            told = {rank: _tells(own, missed, inside) for rank, own in self.lines.items()}
            before = {rank for rank, is_before in told.items() if is_before}
            behind = {rank for rank, is_before in told.items() if is_before is False}
            found = self._known[missed, inside] = before, behind
        return found


def _tells(own: Lines, missed: Place, inside: Place) -> bool | None:
    """Whether a rank calls ``missed`` before ``inside``; None when it does not tell."""
    one, other = own.get(missed.kind), own.get(inside.kind)
    if one is None or other is None or missed.kind == inside.kind:
        return None
    missed_at, inside_at = one.when(missed.match_seq), other.when(inside.match_seq)
    if missed_at >= 0 and inside_at >= 0:
        return missed_at < inside_at
    if missed_at >= 0:
        is_next = other.last == inside.match_seq - 1
        is_since = one.last == missed.match_seq or 0 <= other.at[-1] < missed_at
        return True if is_next and is_since else None
    return False if inside_at >= 0 and one.last < missed.match_seq else None
