"""Launches that share a name: which of the sessions of a folder belong to the last one.

Without a run id, and with one that was given twice, jobs that ran one after the other look like one
in which ranks were restarted. A job's processes live at the same time and share communicators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from comminsight.capture.session import SessionData
from comminsight.model.topology import UNKNOWN_RANK
from comminsight.model.verdict import Message

NAMELESS = ("", "none")  # of a run: torchrun says ``none`` where it was given no id


@dataclass(frozen=True, slots=True)
class _Launch:
    """Sessions that lived at the same time and share communicators."""

    sessions: tuple[SessionData, ...]

    @property
    def begun_ns(self) -> int:
        return min(s.identity.created_real_ns for s in self.sessions)

    @property
    def ended_ns(self) -> int:
        return max(last_real_ns(s) for s in self.sessions)

    @property
    def ranks(self) -> set[int]:
        return {s.identity.global_rank for s in self.sessions}

    @property
    def world_size(self) -> int:
        return max(_world_size(s) for s in self.sessions)


def last_launch(
    sessions: Sequence[SessionData],
) -> tuple[list[SessionData], tuple[SessionData, ...]]:
    """(sessions of the launch begun last, those of earlier ones), both in the given order.

    An earlier one had ended before the last began, and had another world or the same ranks. Where
    the same ranks of a named run came again, they were restarted: they stay, as earlier lives.
    """
    if len(sessions) < 2:
        return list(sessions), ()
    launches = sorted(_launches(sessions), key=lambda launch: launch.begun_ns)
    last = launches.pop()
    earlier = {
        s.identity.session_id
        for launch in launches
        if _is_over(launch, last) and not _is_restarted(launch, last)
        for s in launch.sessions
    }
    own = [s for s in sessions if s.identity.session_id not in earlier]
    return own, tuple(s for s in sessions if s.identity.session_id in earlier)


def launch_notes(earlier: Sequence[SessionData]) -> Iterator[Message]:
    """That there were others, and how to keep them apart."""
    if earlier:
        sizes = sorted({_world_size(s) for s in earlier})
        yield Message("note.earlier_launches", {"n_sessions": len(earlier), "sizes": sizes})


def last_real_ns(session: SessionData) -> int:
    """The latest instant at which the session is known to have lived, on the wall clock."""
    seen = [session.heartbeat_mono_ns, session.identity.created_mono_ns]
    seen += [int(session.records[name].max(initial=0)) for name in ("start_ns", "end_ns")]
    return session.identity.created_real_ns + max(seen) - session.identity.created_mono_ns


def _world_size(session: SessionData) -> int:
    stated = session.identity.world_size
    return stated if stated > 0 else int(session.comms["comm_size"].max(initial=0))


def _is_over(launch: _Launch, last: _Launch) -> bool:
    if launch.ended_ns >= last.begun_ns:
        return False
    is_known = UNKNOWN_RANK not in launch.ranks | last.ranks
    return launch.world_size != last.world_size or not (is_known and not launch.ranks & last.ranks)


def _is_restarted(launch: _Launch, last: _Launch) -> bool:
    is_named = all(s.identity.run_id not in NAMELESS for s in launch.sessions)
    has_all = launch.ranks <= last.ranks and UNKNOWN_RANK not in launch.ranks
    return is_named and has_all and launch.world_size == last.world_size


def _launches(sessions: Sequence[SessionData]) -> Iterator[_Launch]:
    """The sessions by who lived beside whom in a communicator of the same hash and size."""
    parent = list(range(len(sessions)))
    members: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for number, session in enumerate(sessions):
        life = (session.identity.created_real_ns, last_real_ns(session), number)
        rows = session.comms[session.comms["comm_size"] > 1]
        for key in set(zip(rows["comm_hash"].tolist(), rows["comm_size"].tolist(), strict=True)):
            members[key].append(life)
    for lives in members.values():
        for one, other in _overlapping(sorted(lives)):
            parent[_root(parent, one)] = _root(parent, other)
    found: dict[int, list[SessionData]] = defaultdict(list)
    for number, session in enumerate(sessions):
        found[_root(parent, number)].append(session)
    return (_Launch(tuple(own)) for own in found.values())


def _overlapping(lives: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Pairs that link all lives (begin, end, number; by begin) which overlap, one with the next."""
    until_ns, before = -1, -1
    for begun_ns, ended_ns, number in lives:
        if begun_ns <= until_ns:
            yield before, number
        until_ns, before = max(until_ns, ended_ns), number


def _root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = number = parent[parent[number]]
    return number
