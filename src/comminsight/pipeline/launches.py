"""Launches that share a name: which of the sessions of a folder belong to the last one.

Without a run id, and with one that was given twice, jobs that ran one after the other look like one
in which ranks were restarted. A job's processes live at the same time and share communicators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from comminsight.capture.session import SessionData
from comminsight.model.topology import UNKNOWN_RANK, SessionIdentity
from comminsight.model.verdict import Message

NAMELESS = ("", "none")  # of a run: torchrun says ``none`` where it was given no id


class Life(msgspec.Struct, frozen=True):
    """What tells whose launch a session is of: who it was, the latest instant at which it is known
    to have lived, on the wall clock, and its communicators by (hash, size)."""

    identity: SessionIdentity
    last_real_ns: int
    communicators: tuple[tuple[int, int], ...]

    @property
    def begun_real_ns(self) -> int:
        """When it was created."""
        return self.identity.created_real_ns

    @property
    def world_size(self) -> int:
        """As stated, else the size of its largest communicator."""
        stated = self.identity.world_size
        return stated if stated > 0 else max((size for _, size in self.communicators), default=0)


@dataclass(frozen=True, slots=True)
class _Launch:
    """Sessions that lived at the same time and share communicators."""

    lives: tuple[Life, ...]

    @property
    def begun_real_ns(self) -> int:
        return min(life.begun_real_ns for life in self.lives)

    @property
    def last_real_ns(self) -> int:
        return max(life.last_real_ns for life in self.lives)

    @property
    def ranks(self) -> set[int]:
        return {life.identity.global_rank for life in self.lives}

    @property
    def world_size(self) -> int:
        return max(life.world_size for life in self.lives)


class Identified(Protocol):
    """Something of one session."""

    @property
    def identity(self) -> SessionIdentity:
        """Whose it is."""
        ...


Session = TypeVar("Session", bound=Identified)


def newest_run(sessions: Sequence[Session]) -> tuple[list[Session], tuple[Session, ...]]:
    """(sessions of the run that was begun last, those of others): a spool may hold several runs."""
    last = max(sessions, key=lambda s: s.identity.created_real_ns, default=None)
    run_id = last.identity.run_id if last is not None else ""
    own = [s for s in sessions if s.identity.run_id == run_id]
    return own, tuple(s for s in sessions if s.identity.run_id != run_id)


def last_launch(
    sessions: Sequence[SessionData],
) -> tuple[list[SessionData], tuple[SessionData, ...]]:
    """(sessions of the launch begun last, those of earlier ones), both in the given order."""
    earlier = earlier_launches([life_of(s) for s in sessions])
    own = [s for s in sessions if s.identity.session_id not in earlier]
    return own, tuple(s for s in sessions if s.identity.session_id in earlier)


def earlier_launches(lives: Sequence[Life]) -> set[str]:
    """Ids of the sessions that are of an earlier launch than the one begun last.

    An earlier one had ended before the last began, and had another world or the same ranks. Where
    the same ranks of a named run came again, they were restarted: they stay, as earlier lives.
    """
    if len(lives) < 2:
        return set()
    launches = sorted(_launches(lives), key=lambda launch: launch.begun_real_ns)
    last = launches.pop()
    return {
        life.identity.session_id
        for launch in launches
        if _is_over(launch, last) and not _is_restarted(launch, last)
        for life in launch.lives
    }


def life_of(session: SessionData) -> Life:
    """The session's life."""
    seen_mono_ns = max(session.heartbeat_mono_ns, last_mono_ns(session.records))
    return life_from(session.identity, session.comms, seen_mono_ns)


def life_from(identity: SessionIdentity, comms: np.ndarray, seen_mono_ns: int) -> Life:
    """The life of a session with these communicator rows that showed itself last at
    ``seen_mono_ns``, on its own monotonic clock."""
    last_ns = max(seen_mono_ns, identity.created_mono_ns)
    keys = set(zip(comms["comm_hash"].tolist(), comms["comm_size"].tolist(), strict=True))
    return Life(identity, last_ns + identity.real_minus_mono_ns, tuple(sorted(keys)))


def last_mono_ns(records: np.ndarray) -> int:
    """The latest start or end in the records; 0 without one."""
    return max(int(records[name].max(initial=0)) for name in ("start_ns", "end_ns"))


def launch_notes(earlier: Sequence[SessionData]) -> Iterator[Message]:
    """That there were others, and how to keep them apart."""
    if earlier:
        sizes = sorted({life_of(s).world_size for s in earlier})
        yield Message("note.earlier_launches", {"n_sessions": len(earlier), "sizes": sizes})


def last_real_ns(session: SessionData) -> int:
    """The latest instant at which the session is known to have lived, on the wall clock."""
    return life_of(session).last_real_ns


def _is_over(launch: _Launch, last: _Launch) -> bool:
    if launch.last_real_ns >= last.begun_real_ns:
        return False
    is_known = UNKNOWN_RANK not in launch.ranks | last.ranks
    return launch.world_size != last.world_size or not (is_known and not launch.ranks & last.ranks)


def _is_restarted(launch: _Launch, last: _Launch) -> bool:
    is_named = all(life.identity.run_id not in NAMELESS for life in launch.lives)
    has_all = launch.ranks <= last.ranks and UNKNOWN_RANK not in launch.ranks
    return is_named and has_all and launch.world_size == last.world_size


def _launches(lives: Sequence[Life]) -> Iterator[_Launch]:
    """The sessions by who lived beside whom in a communicator of the same hash and size."""
    parent = list(range(len(lives)))
    members: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for number, life in enumerate(lives):
        for comm_hash, size in life.communicators:
            if size > 1:
                span = (life.begun_real_ns, life.last_real_ns, number)
                members[comm_hash, size].append(span)
    for spans in members.values():
        for one, other in _overlapping(sorted(spans)):
            parent[_root(parent, one)] = _root(parent, other)
    found: dict[int, list[Life]] = defaultdict(list)
    for number, life in enumerate(lives):
        found[_root(parent, number)].append(life)
    return (_Launch(tuple(own)) for own in found.values())


def _overlapping(spans: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Pairs that link all spans (begin, end, number; by begin) which overlap, one with the next."""
    until_ns, before = -1, -1
    for begun_ns, ended_ns, number in spans:
        if begun_ns <= until_ns:
            yield before, number
        until_ns, before = max(until_ns, ended_ns), number


def _root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = number = parent[parent[number]]
    return number
