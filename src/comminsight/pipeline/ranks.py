"""Ranks of processes whose environment named none, and the several ranks that one process may hold.

With nothing but the profiler plugin, what a process knows of its place is its ``comm_rank`` in each
communicator. In the largest communicator, where all such processes share it, that is the global
rank. One process may also drive several ranks (a thread or a GPU each): its rows then hold several
``comm_rank`` of one communicator, and it is taken apart into one session per rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from comminsight.capture.session import SessionData
from comminsight.model.event import take_rows
from comminsight.model.ops import RecordKind
from comminsight.model.tally import Tally
from comminsight.model.topology import UNKNOWN_RANK
from comminsight.model.verdict import Message

OF_THE_PROCESS = (RecordKind.NOTICE, RecordKind.DRAIN)


@dataclass(frozen=True, slots=True)
class RankedSessions:
    """Sessions with the ranks that could be told, one per rank, and notes on how."""

    sessions: tuple[SessionData, ...]
    notes: tuple[Message, ...] = ()


def with_ranks(sessions: Iterable[SessionData]) -> RankedSessions:
    """The sessions, those of several ranks taken apart, and unknown ranks as the world's
    communicator gives them. Ranks that cannot be told stay unknown."""
    parts: list[SessionData] = []
    notes: list[Message] = []
    n_shared = n_unassigned = 0
    for session in sessions:
        own, n_left_out = split_ranks(session)
        parts += own
        n_shared += len(own) > 1
        n_unassigned += n_left_out
    if n_shared:
        notes.append(Message("note.ranks_in_one_process", {"n_processes": n_shared}))
    if n_unassigned:
        notes.append(Message("note.unassigned_communicators", {"n": n_unassigned}))
    places = world_places(parts)
    if places:
        notes.append(Message("note.ranks_inferred", {"n_ranks": len(places)}))
    return RankedSessions(tuple(placed(part, places) for part in parts), tuple(notes))


# ranks by the world's communicator


def world_places(sessions: Sequence[SessionData]) -> dict[str, tuple[int, int]]:
    """(rank, world size) by session id, of those whose rank is unknown; empty where no communicator
    can be taken for the world: the largest one, in which every session has one place of its own,
    the same as its rank where that is known."""
    unknown = [s.identity.session_id for s in sessions if s.identity.global_rank == UNKNOWN_RANK]
    largest = max((int(s.comms["comm_size"].max(initial=0)) for s in sessions), default=0)
    if not unknown or largest == 0:
        return {}
    hashes = {
        int(h) for s in sessions for h in s.comms["comm_hash"][s.comms["comm_size"] == largest]
    }
    for comm_hash in sorted(hashes - {0}):
        places = {s.identity.session_id: place_in(s, comm_hash) for s in sessions}
        ranks = [rank for rank in places.values() if rank >= 0]
        is_complete = len(set(ranks)) == len(sessions)
        if is_complete and all(agrees(s, places[s.identity.session_id]) for s in sessions):
            return {name: (places[name], largest) for name in unknown}
    return {}


def place_in(session: SessionData, comm_hash: int) -> int:
    """The session's only ``comm_rank`` in a communicator, -1 where it has none or several."""
    ranks = set(session.comms["comm_rank"][session.comms["comm_hash"] == comm_hash].tolist())
    return int(ranks.pop()) if len(ranks) == 1 else UNKNOWN_RANK


def agrees(session: SessionData, rank: int) -> bool:
    """True unless the session is known to have another rank."""
    return session.identity.global_rank in {UNKNOWN_RANK, rank}


def placed(session: SessionData, places: dict[str, tuple[int, int]]) -> SessionData:
    """The session with its rank, if ``places`` has one for it."""
    if session.identity.session_id not in places:
        return session
    rank, size = places[session.identity.session_id]
    identity = msgspec.structs.replace(session.identity, global_rank=rank, world_size=size)
    return replace(session, identity=identity)


# several ranks in one process


def split_ranks(session: SessionData) -> tuple[tuple[SessionData, ...], int]:
    """(one session per rank of the process, number of communicators that could not be given to
    one of them); the session itself where it has one rank."""
    ranks = rank_per_row(session.comms)
    held = sorted(set(ranks.tolist()) - {UNKNOWN_RANK})
    if len(held) < 2:
        return (session,), 0
    parts = tuple(
        part_of(session, session.comms["comm_index"][ranks == rank], rank, is_first=not i)
        for i, rank in enumerate(held)
    )
    return parts, int(np.count_nonzero(ranks == UNKNOWN_RANK))


def rank_per_row(comms: np.ndarray) -> np.ndarray:
    """For each row the place of its rank in the process's widest communicator, -1 unknown.

    A row belongs to the rank that is on its device. Without devices only communicators of the same
    size and with the same places are taken to have the same order. All -1 where the process has
    one rank.
    """
    ranks = np.full(len(comms), UNKNOWN_RANK)
    widest = widest_shared(comms)
    if widest == 0:
        return ranks
    is_world = comms["comm_hash"] == widest
    ranks[is_world] = comms["comm_rank"][is_world]
    held, size = set(ranks[is_world].tolist()), int(comms["comm_size"][is_world][0])
    pairs = set(
        zip(comms["device_number"][is_world].tolist(), ranks[is_world].tolist(), strict=True)
    )
    by_device = dict(pairs) if len({device for device, _ in pairs} - {0}) == len(held) else {}
    for comm_hash in set(comms["comm_hash"].tolist()) - {widest, 0}:
        rows = comms["comm_hash"] == comm_hash
        if by_device:
            devices = comms["device_number"][rows].tolist()
            ranks[rows] = [by_device.get(device, UNKNOWN_RANK) for device in devices]
        elif (
            set(comms["comm_rank"][rows].tolist()) == held
            and (comms["comm_size"][rows] == size).all()
        ):
            ranks[rows] = comms["comm_rank"][rows]
    return ranks


def widest_shared(comms: np.ndarray) -> int:
    """Hash of the largest communicator of which the process has several places; 0 without one."""
    shared = [
        (int(rows["comm_size"].max()), len(set(rows["comm_rank"].tolist())), int(comm_hash))
        for comm_hash in set(comms["comm_hash"].tolist()) - {0}
        for rows in [comms[comms["comm_hash"] == comm_hash]]
        if len(set(rows["comm_rank"].tolist()) - {UNKNOWN_RANK}) > 1
    ]
    return max(shared, default=(0, 0, 0))[2]


def part_of(
    session: SessionData, comm_index: np.ndarray, rank: int, *, is_first: bool
) -> SessionData:
    """What of the session is one rank's. Its records are numbered anew where none is missing, since
    the numbers of the others are no gaps; what was lost or counted is told once, by the first."""
    is_own = np.isin(session.records["comm_index"], comm_index)
    is_own |= np.isin(session.records["kind"], OF_THE_PROCESS)
    records = take_rows(session.records, np.flatnonzero(is_own))
    if session.complete_from_seq == 1:
        records["seq"] = np.arange(1, len(records) + 1)
        records["seq_low"] = records["seq"] & 0xFFFFFFFF
    losses = session.losses.copy()
    others = np.setdiff1d(np.arange(len(losses)), comm_index)
    losses[others[others > 0]] = 0
    name = f"{session.identity.session_id}.{rank}"
    identity = msgspec.structs.replace(
        session.identity, session_id=name, global_rank=UNKNOWN_RANK, local_rank=UNKNOWN_RANK
    )
    return replace(
        session,
        identity=identity,
        comms=session.comms[np.isin(session.comms["comm_index"], comm_index)],
        records=records,
        losses=losses,
        in_flight=session.in_flight[np.isin(session.in_flight["record"]["comm_index"], comm_index)],
        tally=session.tally if is_first else Tally(),
        nccl_counters=session.nccl_counters if is_first else {},
    )
