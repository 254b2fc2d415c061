"""Roles of the run's communicators from what all their members did, and from who the members are.

Communicators of one shape (the same differences between members, the same kind of ops) that share
no rank are one *family*: the same dimension of the layout in another place. The clues of every
member of every communicator of a family are averaged, so that what one rank cannot tell (the last
stage of a pipeline of two looks like a ring) is decided by those that can. Geometry then supports a
role or speaks against it, but never gives one: equal mixes stay unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from comminsight.model.ops import CommRole
from comminsight.model.topology import Communicator
from comminsight.model.trace import RankTrace
from comminsight.semantics.op_mix import REDUCING, OpMix, op_mixes
from comminsight.semantics.role_clues import NO_GUESS, Clue, RoleGuess, guess
from comminsight.semantics.role_inference import (
    BESIDE_GRADIENTS,
    Place,
    session_clues,
    world_purpose,
)

MAX_OPS_READ = 65_536  # per rank: enough steps of any job
_MIN_CHAIN = 3
_FEW_RANKS = 16
_REDUCING_GRADIENTS = {
    CommRole.DP, CommRole.DP_SHARD, CommRole.DP_REPLICATE, CommRole.GLOBAL
}  # fmt: skip
_NOT_INSIDE = {CommRole.DP, CommRole.DP_SHARD, CommRole.DP_REPLICATE, CommRole.TP}


class JoinedRoles(NamedTuple):
    """The communicators with their roles, what the world's communicator is used for where it is
    the only one of its size (UNKNOWN otherwise), and the ids of communicators that move data and
    whose role could not be told."""

    communicators: tuple[Communicator, ...]
    world_purpose: RoleGuess
    undecided: tuple[int, ...] = ()


def join_roles(
    communicators: Sequence[Communicator], ranks: Sequence[RankTrace], world_size: int
) -> JoinedRoles:
    """Roles for the communicators that no name tells; those with a name stay as they are.

    An inferred role carries its confidence and the codes of its evidence; below the least
    confidence it is UNKNOWN.
    """
    reading = _Reading(communicators, world_size)
    if all(map(is_named, communicators)):  # only what the world's is used for is left to tell
        ranks = ranks[:: max(1, len(ranks) // _FEW_RANKS)]
    for rank in ranks:
        reading.add(rank)
    guesses = reading.guesses()
    roled = tuple(
        _roled(comm, guesses.get(comm.comm_id), is_one_of_several=reading.is_one_of_several(comm))
        for comm in communicators
    )
    purpose = guess(_mean(reading.purpose, reading.n_purpose))
    undecided = tuple(c.comm_id for c in roled if c.role is CommRole.UNKNOWN and reading.moves(c))
    return JoinedRoles(roled, purpose, undecided)


def is_named(communicator: Communicator) -> bool:
    """Whether a name gave the role."""
    return not communicator.is_role_inferred and communicator.role is not CommRole.UNKNOWN


def _roled(
    communicator: Communicator, found: RoleGuess | None, *, is_one_of_several: bool
) -> Communicator:
    """With the role that was told, or else with that of its size, where that says anything."""
    if found is None or is_named(communicator):
        return communicator
    by_size = CommRole.UNKNOWN if is_one_of_several else communicator.role
    known = by_size if found.role is CommRole.UNKNOWN else found.role
    is_told = found.role is not CommRole.UNKNOWN
    return msgspec.structs.replace(
        communicator, role=known, is_role_inferred=True,
        role_confidence=found.confidence if is_told else 0.0,
        role_evidence=found.evidence if is_told else (),
    )  # fmt: skip


@dataclass(slots=True)
class _Seen:
    """What was read of one communicator."""

    communicator: Communicator
    clues: list[Clue] = field(default_factory=list)
    n_readings: int = 0
    kinds: set[str] = field(default_factory=set)
    reduces: bool = False

    def add(self, mix: OpMix, clues: Iterable[Clue]) -> None:
        self.clues += clues
        self.n_readings += 1
        self.kinds.add(_kind(mix))
        self.reduces |= bool(np.isin(mix.ops, REDUCING).any())

    @property
    def kind(self) -> str:
        return max(self.kinds, key=_KINDS.index, default=_KINDS[0])


_KINDS = ("nothing", "control", "data", "p2p", "exchange")


def _kind(mix: OpMix) -> str:
    if mix.n_exchanges:
        return "exchange"
    if mix.has_p2p:
        return "p2p"
    return "data" if mix.n_data else "control" if mix.controls else "nothing"


class _Reading:
    """All ranks' clues while they are collected."""

    def __init__(self, communicators: Sequence[Communicator], world_size: int) -> None:
        self.purpose: list[Clue] = []
        self.n_purpose = 0
        self._world_size = world_size
        self._named = {c.comm_id + 1: c.role for c in communicators if is_named(c)}
        self._seen = {c.comm_id: _Seen(c) for c in communicators}
        self._sizes = np.array([0, *(c.comm_size for c in communicators)], np.int64)
        self._places = [
            {rank: place for place, rank in enumerate(c.members)} for c in communicators
        ]

    def add(self, rank: RankTrace) -> None:
        """One rank's ops; entries of the arrays are ``comm_id + 1``."""
        rows = rank.ops[:MAX_OPS_READ]
        own_rank = rank.global_rank
        places = np.array([-1, *(place.get(own_rank, -1) for place in self._places)], np.int64)
        index = rank.comm_ids_of(np.ascontiguousarray(rows["comm_index"])) + 1
        mixes = op_mixes(rows, index, self._sizes, places)
        place = Place(self._world_size, own_rank)
        clues = session_clues(mixes, place, self._named)
        for mix in mixes:
            own = clues.get(mix.comm_index, ())
            self._seen[mix.comm_index - 1].add(mix, own)
        self.purpose += world_purpose(mixes, place)
        self.n_purpose += 1

    def moves(self, communicator: Communicator) -> bool:
        """Whether more than numbers went over it."""
        return bool(self._seen[communicator.comm_id].kinds - {"nothing", "control"})

    def is_one_of_several(self, communicator: Communicator) -> bool:
        """Whether it moves data as one of several over the whole world: not all of them are GLOBAL
        because of their size."""
        spanning = [
            seen for seen in self._seen.values()
            if seen.n_readings and seen.communicator.comm_size == self._world_size
        ]  # fmt: skip
        is_own = communicator.comm_size == self._world_size and self.moves(communicator)
        return is_own and len(spanning) > 1

    def guesses(self) -> dict[int, RoleGuess]:
        """By ``comm_id``, for communicators without a name that were used."""
        families = _families(seen for seen in self._seen.values() if seen.n_readings)
        strides = [stride for family in families if (stride := _stride(family)) > 0]
        found: dict[int, RoleGuess] = {}
        for family in families:
            clues = _mean((c for seen in family for c in seen.clues), _n_readings(family))
            told = guess((*clues, *self._by_geometry(family, clues, strides)))
            found |= {seen.communicator.comm_id: told for seen in family}
        found |= self._embeddings(found)
        return found | self._inside_gradients(found, families)

    def _by_geometry(
        self, family: Sequence[_Seen], clues: Sequence[Clue], strides: Sequence[int]
    ) -> Iterable[Clue]:
        stride, size = _stride(family), family[0].communicator.comm_size
        leading = guess(clues).evidence and max(clues, key=lambda clue: clue.weight).role
        if leading is CommRole.TP and stride == 1:
            yield Clue(CommRole.TP, 0.5, "innermost")
        elif leading is CommRole.TP and stride > 1 and min(strides) == 1:
            yield Clue(CommRole.TP, -0.5, "not_innermost")
        elif leading is CommRole.PP and stride * size == self._world_size:
            yield Clue(CommRole.PP, 0.5, "outermost")

    def _inside_gradients(
        self, found: Mapping[int, RoleGuess], families: Sequence[Sequence[_Seen]]
    ) -> dict[int, RoleGuess]:
        """Groups whose members all belong to one group that reduces gradients: they hold the same
        parameters, so that what they gather and scatter themselves is no parameter."""
        gradients = [
            seen for seen in self._seen.values()
            if seen.reduces and seen.kind == "data"
            and self._role(seen, found) in _REDUCING_GRADIENTS
        ]  # fmt: skip
        told: dict[int, RoleGuess] = {}
        for family in families:
            one = family[0].communicator
            own = found.get(one.comm_id, NO_GUESS)
            around = [
                wide for wide in gradients
                if wide not in family and set(one.members) <= set(wide.communicator.members)
            ]  # fmt: skip
            is_narrow = any(wide.communicator.comm_size > one.comm_size for wide in around)
            is_narrow |= bool(around) and own.role is CommRole.TP
            if around and family[0].kind == "data" and own.evidence[:1] == (BESIDE_GRADIENTS,):
                clues = _mean((c for seen in family for c in seen.clues), _n_readings(family))
                own = guess((*clues, Clue(CommRole.CP, 1.0, "inside_gradients")))
                told |= {seen.communicator.comm_id: own for seen in family}
            elif is_narrow and family[0].kind == "data" and own.role in _NOT_INSIDE:
                told |= {seen.communicator.comm_id: NO_GUESS for seen in family}
        return told

    def _role(self, seen: _Seen, found: Mapping[int, RoleGuess]) -> CommRole:
        comm = seen.communicator
        return comm.role if is_named(comm) else found.get(comm.comm_id, NO_GUESS).role

    def _embeddings(self, found: Mapping[int, RoleGuess]) -> dict[int, RoleGuess]:
        """Pairs of the first and the last stage that reduce data: tied embeddings."""
        ends = set()
        for seen in self._seen.values():
            comm = seen.communicator
            if self._role(seen, found) is CommRole.PP and comm.comm_size >= _MIN_CHAIN:
                ends.add((comm.members[0], comm.members[-1]))
        told = RoleGuess(CommRole.EMB, 0.8, ("first_and_last_stage",))
        return {
            seen.communicator.comm_id: told
            for seen in self._seen.values()
            if seen.communicator.members in ends and seen.kinds == {"data"}
        }


def _families(seen: Iterable[_Seen]) -> list[list[_Seen]]:
    """Communicators of one shape and kind of ops that share no rank, in order of their number."""
    of_key: dict[tuple[object, ...], list[tuple[list[_Seen], set[int]]]] = {}
    families: list[list[_Seen]] = []
    for one in seen:
        members = one.communicator.members
        shape = tuple(rank - members[0] for rank in members) if min(members) >= 0 else len(members)
        candidates = of_key.setdefault((shape, one.kind), [])
        taken = next((entry for entry in candidates if not entry[1] & set(members)), None)
        if taken is None:
            taken = ([], set())
            candidates.append(taken)
            families.append(taken[0])
        taken[0].append(one)
        taken[1].update(rank for rank in members if rank >= 0)
    return families


def _n_readings(family: Iterable[_Seen]) -> int:
    return sum(seen.n_readings for seen in family)


def _stride(family: Sequence[_Seen]) -> int:
    """The constant difference between members; 0 where there is none or it is not known."""
    members = family[0].communicator.members
    steps = {after - before for before, after in pairwise(members)}
    return steps.pop() if len(steps) == 1 and min(members) >= 0 else 0


def _mean(clues: Iterable[Clue], n_readings: int) -> tuple[Clue, ...]:
    """Each (role, code) once, with its weight averaged over all readings."""
    sums: dict[tuple[CommRole, str], float] = {}
    for clue in clues:
        key = clue.role, clue.code
        sums[key] = sums.get(key, 0.0) + clue.weight
    return tuple(Clue(role, sums[role, code] / max(n_readings, 1), code) for role, code in sums)
