"""Communicators of the run from the rows that its sessions wrote separately.

Rows speak of the same communicator when (comm_hash, ordinal) agree and their member lists do not
exclude each other: equal names may be different groups. Members come from the rows' lists and from
the (comm_rank, global_rank) of the sessions themselves. Where two of them disagree the member is
unknown (-1): never a guess, not even by majority.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from comminsight.errors import FormatError
from comminsight.model.event import COMM_FLAG_MEMBERS_TRUNCATED
from comminsight.model.ops import Backend
from comminsight.model.ranges import MAX_MEMBERS, range_expand
from comminsight.model.topology import UNKNOWN_RANK, Communicator, SessionIdentity
from comminsight.semantics.comm_table import MAX_COMM_INDEX, row_text
from comminsight.semantics.roles import role_of

SessionRows = tuple[SessionIdentity, np.ndarray]


def join_communicators(
    sessions: Sequence[SessionRows],
) -> tuple[tuple[Communicator, ...], dict[str, np.ndarray]]:
    """``(communicators, comm_ids)`` with ``communicators[comm_id].comm_id == comm_id``.

    ``sessions`` holds (identity, rows as ``COMM_DTYPE``); ``comm_ids[session_id][comm_index]`` is
    an int32 array, -1 for an index without a row, and for one of several places that a session has
    in one communicator: it speaks for one rank. Numbers follow the order of the sessions and of
    their rows, so give the sessions in rank order.
    """
    world_size = max((identity.world_size for identity, _ in sessions), default=-1)
    joined: dict[tuple[int, int], list[_Join]] = {}
    in_order: list[_Join] = []
    comm_ids: dict[str, np.ndarray] = {}
    for identity, rows in sessions:
        claims = [claim for row in rows if (claim := _read(row, identity)) is not None]
        ids = np.full(max((claim.comm_index for claim in claims), default=0) + 1, -1, np.int32)
        for claim in _of_one_rank(claims):
            join = _find(joined.setdefault(claim.key, []), claim)
            if join is None:
                join = _Join(comm_id=len(in_order))
                joined[claim.key].append(join)
                in_order.append(join)
            join.add(claim)
            ids[claim.comm_index] = join.comm_id
        comm_ids[identity.session_id] = ids
    return tuple(join.communicator(world_size) for join in in_order), comm_ids


def _of_one_rank(claims: list[_Claim]) -> list[_Claim]:
    """The claims without those on communicators of which the session has several places."""
    places: dict[tuple[int, int], set[int]] = {}
    for claim in claims:
        if claim.key[0]:
            places.setdefault(claim.key, set()).add(claim.comm_rank)
    return [claim for claim in claims if len(places.get(claim.key, ())) <= 1]


@dataclass(frozen=True, slots=True)
class _Claim:
    """What one row says; ``members`` is empty where it lists none."""

    key: tuple[int, int]
    comm_index: int
    comm_rank: int
    comm_size: int
    global_rank: int
    members: tuple[int, ...]
    name: str
    desc: str
    backend: int


@dataclass(slots=True)
class _Join:
    """One communicator while rows are added to it."""

    comm_id: int
    claims: list[_Claim] = field(default_factory=list)
    members: set[int] = field(default_factory=set)
    is_listed: bool = False

    def may_be(self, claim: _Claim) -> bool:
        """Whether nothing excludes that the claim speaks of this communicator."""
        if claim.comm_size != self.claims[0].comm_size:
            return False
        named = set(claim.members) or {claim.global_rank}
        named.discard(UNKNOWN_RANK)
        if not (self.is_listed or claim.members) or not named or not self.members:
            return True
        return bool(named & self.members)

    def add(self, claim: _Claim) -> None:
        self.claims.append(claim)
        self.is_listed |= bool(claim.members)
        self.members.update(rank for rank in claim.members if rank >= 0)
        if claim.global_rank >= 0:
            self.members.add(claim.global_rank)

    def communicator(self, world_size: int) -> Communicator:
        first = self.claims[0]
        name = next((claim.name for claim in self.claims if claim.name), "")
        desc = next((claim.desc for claim in self.claims if claim.desc), "")
        size = max(claim.comm_size for claim in self.claims)
        role, is_inferred = role_of(name, desc, first.backend, size, world_size)
        return Communicator(
            comm_id=self.comm_id, comm_hash=first.key[0], ordinal=first.key[1], name=name,
            desc=desc, role=role, is_role_inferred=is_inferred, members=self._members(size),
            backend=_backend(first.backend),
        )  # fmt: skip

    def _members(self, size: int) -> tuple[int, ...]:
        said: list[set[int]] = [set() for _ in range(size)]
        for claim in self.claims:
            for comm_rank, global_rank in enumerate(claim.members[:size]):
                said[comm_rank].add(global_rank)
            if 0 <= claim.comm_rank < size:
                said[claim.comm_rank].add(claim.global_rank)
        known = [ranks - {UNKNOWN_RANK} for ranks in said]
        return tuple(ranks.pop() if len(ranks) == 1 else UNKNOWN_RANK for ranks in known)


def _find(joins: list[_Join], claim: _Claim) -> _Join | None:
    """The communicator the claim speaks of; None when it must be another one."""
    if claim.key[0] == 0:
        return None  # unknown hash: nothing to join by
    return next((join for join in joins if join.may_be(claim)), None)


def _read(row: np.ndarray, identity: SessionIdentity) -> _Claim | None:
    index, size = int(row["comm_index"]), int(row["comm_size"])
    if not 0 < index < MAX_COMM_INDEX:
        return None
    comm_rank = int(row["comm_rank"])
    return _Claim(
        key=(int(row["comm_hash"]), int(row["ordinal"])), comm_index=index, comm_rank=comm_rank,
        comm_size=min(max(size, comm_rank + 1, 1), MAX_MEMBERS),
        global_rank=identity.global_rank, members=_listed(row), name=row_text(row["name"]),
        desc=row_text(row["desc"]), backend=int(row["backend"]),
    )  # fmt: skip


def _listed(row: np.ndarray) -> tuple[int, ...]:
    """The row's member list; empty where it is cut short, unreadable or not one per member."""
    if int(row["flags"]) & COMM_FLAG_MEMBERS_TRUNCATED:
        return ()
    try:
        members = tuple(range_expand(row_text(row["members"])))
    except FormatError:
        return ()  # a corrupt list is no evidence
    return members if len(members) == int(row["comm_size"]) else ()


def _backend(code: int) -> Backend:
    return Backend(code) if code in {int(backend) for backend in Backend} else Backend.UNKNOWN
