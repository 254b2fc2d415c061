"""What one rank's dump says of its calls: which are over, which are in flight, how far it came.

A dump holds the newest entries of a ring, or only those in flight. What is not in it is known only
where nothing can have been overwritten (the first entry of the process is there), where a newer
entry of the same group is, or where the group's counter speaks of collectives alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import msgspec

from comminsight.analysis.clock import SYNCHRONISING_OPS
from comminsight.format.flight_recorder import FlightDump
from comminsight.format.flight_recorder_entry import FlightEntry, FlightState
from comminsight.model.ops import P2P_OPS, Op

HOOK = "c10d"  # what torch's own hook gives as backend


class Call(msgspec.Struct, frozen=True, gc=False):
    """One launch: an entry, or the entries of a coalesced group. ``seq`` is that of the group's
    collectives; of P2P it is this rank's own and lines up with no other rank's. ``first`` is the
    entry that was made first, ``record_id`` its place in the history of the process."""

    pg_id: int
    seq: int
    op: Op
    entries: tuple[FlightEntry, ...]
    is_over: bool
    first: FlightEntry
    record_id: int


class Reached(NamedTuple):
    """How far the collectives of a group came: the highest number that was entered, that is over,
    and that is over and needed all members; the lowest that is in flight."""

    entered: int
    done: int
    synchronised: int
    oldest_open: int | None


@dataclass(frozen=True, slots=True)
class RankCalls:
    """The calls of one rank, oldest first. ``in_flight`` are those that are not over; ``reached``
    is by this rank's number of a group.

    ``is_whole``: its first entry ever and all since are there. ``is_ring``: all of its newest
    entries are there, not only those in flight. ``n_lost`` entries were overwritten; 0 where that
    is not known. ``is_inside_unseen``: a counter says that a call is in flight of which there is
    no entry. ``gate_id`` is the oldest call in flight that no finished call is newer than: what is
    newer may be held by it; -1 without one. ``may_hide_p2p``: it is of gloo, which
    keeps no entry of sends and receives, and numbers or groups are missing between its entries.
    ``with_p2p``: groups with sends and receives, or with calls that come after such.
    """

    collectives: tuple[Call, ...]
    p2p: tuple[Call, ...]
    in_flight: tuple[Call, ...]
    reached: Mapping[int, Reached]
    is_whole: bool
    is_ring: bool
    n_lost: int
    is_inside_unseen: bool
    gate_id: int
    may_hide_p2p: bool
    with_p2p: frozenset[int]

    def is_queued(self, call: Call) -> bool:
        """True for a call in flight that an older one may hold: not for one that has begun on the
        device, nor for the sends and receives of the batch that the oldest open call belongs to,
        which are issued at once, under one number."""
        if not 0 <= self.gate_id < call.record_id or call.first.state is FlightState.STARTED:
            return False
        same = (one for one in self.p2p if (one.pg_id, one.seq) == (call.pg_id, call.seq))
        is_of_gate = call.first.is_p2p and any(one.record_id == self.gate_id for one in same)
        return not is_of_gate


def calls_of(dump: FlightDump) -> RankCalls:
    """The calls of one dump."""
    entries = _of_one_hook(dump.entries)
    collectives = _collectives([entry for entry in entries if not entry.is_p2p])
    p2p = _p2p([entry for entry in entries if entry.is_p2p])
    ids = [entry.record_id for entry in entries]
    is_unbroken = bool(ids) and ids == [*range(ids[0], ids[0] + len(ids))]
    is_ring = is_unbroken and any(entry.is_over for entry in entries)
    in_flight = [call for call in (*collectives, *p2p) if not call.is_over]
    in_flight.sort(key=attrgetter("record_id"))
    return RankCalls(
        collectives=collectives,
        p2p=p2p,
        in_flight=tuple(in_flight),
        reached=_reached(collectives),
        is_whole=is_unbroken and ids[0] == 0,
        is_ring=is_ring,
        n_lost=max(0, ids[0]) if is_ring else 0,
        is_inside_unseen=_is_inside_unseen(dump, entries),
        gate_id=_gate_id(entries, in_flight) if in_flight else -1,
        may_hide_p2p=_may_hide_p2p([entry for entry in entries if entry.backend == "gloo"]),
        with_p2p=frozenset(e.pg_id for e in entries if e.p2p_seq or e.is_p2p or e.op in P2P_OPS),
    )


def is_gloo_alone(dumps: Iterable[FlightDump]) -> bool:
    """Whether there are entries and all are of gloo."""
    backends = (entry.backend for dump in dumps for entry in dump.entries)
    return next(backends, "") == "gloo" and all(backend == "gloo" for backend in backends)


def _of_one_hook(entries: Sequence[FlightEntry]) -> list[FlightEntry]:
    """Without the entries of torch's own hook where the backend recorded the same calls too, and
    where the hook tells no end of any."""
    if HOOK not in {entry.backend for entry in entries}:
        return list(entries)
    recorded = {entry.pg_id for entry in entries if entry.backend != HOOK}
    has_ends = any(entry.is_over for entry in entries if entry.backend == HOOK)
    return [e for e in entries if e.backend != HOOK or (has_ends and e.pg_id not in recorded)]


def _collectives(entries: Iterable[FlightEntry]) -> tuple[Call, ...]:
    first: dict[tuple[int, int], FlightEntry] = {}
    coalesced: dict[tuple[int, int], list[FlightEntry]] = {}
    for entry in entries:
        key = entry.pg_id, entry.seq
        if (known := first.setdefault(key, entry)) is not entry:
            coalesced.setdefault(key, [known]).append(entry)
    calls = [
        Call(pg_id, seq, one.op, (one,), one.is_over, one, one.record_id)
        if (pg_id, seq) not in coalesced
        else _coalesced(pg_id, seq, coalesced[pg_id, seq])
        for (pg_id, seq), one in first.items()
    ]
    return tuple(sorted(_without_stale(calls, attrgetter("pg_id")), key=_AGE))


def _reached(collectives: Iterable[Call]) -> dict[int, Reached]:
    grouped: dict[int, list[Call]] = defaultdict(list)
    for call in collectives:
        grouped[call.pg_id].append(call)
    return {pg_id: _reached_by(calls) for pg_id, calls in grouped.items()}


def _reached_by(calls: Sequence[Call]) -> Reached:
    over = [call for call in calls if call.is_over]
    synchronised = 0
    for call in reversed(over):
        if call.seq > synchronised and call.op in SYNCHRONISING_OPS:
            synchronised = call.seq
    return Reached(
        entered=max([call.seq for call in calls]),
        done=max([call.seq for call in over], default=0),
        synchronised=synchronised,
        oldest_open=min([call.seq for call in calls if not call.is_over], default=None),
    )


def _p2p(entries: Sequence[FlightEntry]) -> tuple[Call, ...]:
    """A call per entry: what ends a coalesced group speaks for the calls in it."""
    ended = {(e.pg_id, e.seq) for e in entries if e.is_end and e.is_over}
    calls = [
        Call(e.pg_id, e.seq, e.op, (e,), e.is_over or (e.pg_id, e.seq) in ended, e, e.record_id)
        for e in entries
        if not e.is_end
    ]
    stream = _without_stale(calls, lambda call: (call.pg_id, call.op, call.first.peer))
    return tuple(sorted(stream, key=_AGE))


def _coalesced(pg_id: int, seq: int, entries: list[FlightEntry]) -> Call:
    """One launch of several calls. Its members are never marked completed by some versions: the
    entry that ends it is."""
    body = tuple(entry for entry in entries if not entry.is_end) or tuple(entries)
    ops = {entry.op for entry in body}
    ends = [entry for entry in entries if entry.is_end] or body
    op = ops.pop() if len(ops) == 1 else Op.UNKNOWN
    is_over = all(entry.is_over for entry in ends)
    return Call(pg_id, seq, op, body, is_over, body[0], body[0].record_id)


def _without_stale(calls: list[Call], line_of: Callable[[Call], Hashable]) -> list[Call]:
    """NCCL ends the calls of one communicator in order: one before a finished one is over, though
    its own entry does not say so."""
    newest: dict[Hashable, int] = {line_of(call): -1 for call in calls if not call.is_over}
    if not newest:
        return calls
    for call in calls:
        line = line_of(call)
        is_newer = call.is_over and call.record_id > newest.get(line, call.record_id)
        if is_newer and call.first.backend == "nccl":
            newest[line] = call.record_id
    return [
        call
        if call.is_over or call.record_id > newest[line_of(call)]
        else msgspec.structs.replace(call, is_over=True)
        for call in calls
    ]


_AGE = attrgetter("record_id", "seq")


def _is_inside_unseen(dump: FlightDump, entries: Sequence[FlightEntry]) -> bool:
    behind = {
        pg_id: counters.enqueued
        for pg_id, counters in dump.counters.items()
        if counters.enqueued > max(counters.completed, 0)
    }
    for entry in reversed(entries):
        if not behind:
            break
        if not entry.is_over or behind.get(entry.pg_id) in {entry.seq, entry.op_id}:
            behind.pop(entry.pg_id, None)
    return bool(behind)


def _may_hide_p2p(entries: Sequence[FlightEntry]) -> bool:
    groups = {entry.pg_id for entry in entries}
    has_gap = groups != set(range(len(groups)))
    return bool(entries) and (has_gap or any(entry.op_id > entry.seq for entry in entries))


def _gate_id(entries: Sequence[FlightEntry], in_flight: Sequence[Call]) -> int:
    """In a dump of calls in flight alone, those left out between two entries are over."""
    over = [entry.record_id for entry in entries if entry.is_over]
    ids = sorted(entry.record_id for entry in entries)
    if ids and ids != [*range(ids[0], ids[0] + len(ids))]:
        over += [after - 1 for before, after in pairwise(ids) if after > before + 1]
    newest = max(over, default=-1)
    return next((call.record_id for call in in_flight if call.record_id > newest), -1)


def mixed_groups(
    calls: Mapping[int, RankCalls], comm_ids: Mapping[int, Mapping[int, int]]
) -> set[int]:
    """Communicators in which any rank sends or receives: their counters number both kinds."""
    return {comm_ids[rank].get(pg_id, -1) for rank, own in calls.items() for pg_id in own.with_p2p}
