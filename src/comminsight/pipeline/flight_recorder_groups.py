"""The communicators of a job from what each rank's dump knows of its groups.

Numbers of groups are each process's own. Groups of two ranks are one when they have the same name
and the same members; without a name, the same members and the same place among groups of these.
gloo names no members: they are then the ranks that used the group, and how many there should be
is told by an all-gather of it, or not at all.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from comminsight.format.flight_recorder import FlightDump, FlightGroup
from comminsight.format.flight_recorder_entry import FlightEntry
from comminsight.model.ops import Backend, Op
from comminsight.model.topology import Communicator
from comminsight.pipeline.flight_recorder_files import RankDump
from comminsight.semantics.roles import role_of

DEFAULT_NAME = "0"  # of the default group; torch counts the others from 1
DEFAULT_DESC = "default_pg"
_BACKENDS = {"nccl": Backend.NCCL, "gloo": Backend.GLOO, "mpi": Backend.MPI}

GroupKey = tuple[str, str, tuple[int, ...], int]  # name, desc, members, place among equals


@dataclass(frozen=True, slots=True)
class JobGroups:
    """``comm_ids[rank][pg_id]`` is the communicator of a rank's own number of a group;
    ``assumed`` are communicators whose members are only those that were seen to use them."""

    world_size: int
    communicators: tuple[Communicator, ...]
    comm_ids: Mapping[int, Mapping[int, int]]
    assumed: frozenset[int] = field(default_factory=frozenset)


def join_groups(dumps: Sequence[RankDump], world_size: int = 0) -> JobGroups:
    """All groups of the job; ``world_size`` where it is known from elsewhere."""
    by_rank = {one.global_rank: groups_of(one.dump) for one in dumps}
    known = {
        group.name: group for own in by_rank.values() for group in own.values() if group.members
    }
    by_rank = {rank: _with_members(groups, known) for rank, groups in by_rank.items()}
    keys: dict[GroupKey, set[int]] = defaultdict(set)
    owners = {rank: _keys(groups) for rank, groups in by_rank.items()}
    for rank, own in owners.items():
        for key in own.values():
            keys[key].add(rank)
    world = max(world_size, _world(by_rank))
    sizes, backends = _told_sizes(dumps, owners), _told_backends(dumps, owners)
    numbered = {key: number for number, key in enumerate(sorted(keys, key=_order))}
    made = {
        key: _communicator(number, key, keys[key], sizes.get(key, 0), world, backends.get(key, ""))
        for key, number in numbered.items()
    }
    return JobGroups(
        world_size=world,
        communicators=tuple(made.values()),
        comm_ids={r: {pg: numbered[key] for pg, key in own.items()} for r, own in owners.items()},
        assumed=frozenset(
            numbered[key]
            for key in made
            if not (key[2] or sizes.get(key) or (key[0] == DEFAULT_NAME and world_size))
        ),
    )


def groups_of(dump: FlightDump) -> dict[int, FlightGroup]:
    """The groups of one process by its own numbers, as far as they can be told."""
    named = {group.name: group for group in dump.groups if group.name}
    found = {group.pg_id: group for group in dump.groups if group.pg_id >= 0}
    for entry in dump.firsts.values():
        if entry.pg_id < 0 or entry.pg_id in found:
            continue
        if entry.group:
            found[entry.pg_id] = named.get(entry.group, FlightGroup(entry.group, entry.desc))
        elif entry.pg_id == 0:
            found[0] = FlightGroup(DEFAULT_NAME, DEFAULT_DESC)
    return found | _by_order(dump, found)


def _by_order(dump: FlightDump, found: Mapping[int, FlightGroup]) -> dict[int, FlightGroup]:
    """Numbers without an entry: both the numbers and the names of groups count up as they are made,
    where all names are numbers, there are as many, and every entry agrees."""
    names = [group.name for group in dump.groups]
    if len(names) != len(dump.counters) or not all(map(str.isdecimal, names)):
        return {}
    in_order = sorted(dump.groups, key=lambda group: int(group.name))
    paired = dict(zip(sorted(dump.counters), in_order, strict=True))
    agrees = all(paired.get(pg_id, group).name == group.name for pg_id, group in found.items())
    return paired if agrees else {}


def _with_members(
    groups: Mapping[int, FlightGroup], known: Mapping[str, FlightGroup]
) -> dict[int, FlightGroup]:
    """With the members that another rank's dump names."""
    return {
        pg_id: known.get(group.name, group) if not group.members and group.name else group
        for pg_id, group in groups.items()
    }


def _keys(groups: Mapping[int, FlightGroup]) -> dict[int, GroupKey]:
    places: dict[tuple[str, tuple[int, ...]], int] = defaultdict(int)
    keys = {}
    for pg_id, group in sorted(groups.items()):
        same = group.name, group.members
        keys[pg_id] = (group.name, group.desc, group.members, 0 if group.name else places[same])
        places[same] += 1
    return keys


def _order(key: GroupKey) -> tuple[bool, int, GroupKey]:
    is_number = key[0].isdecimal()
    return not is_number, int(key[0]) if is_number else 0, key


def _world(by_rank: Mapping[int, Mapping[int, FlightGroup]]) -> int:
    """One more than the highest rank that is named anywhere."""
    named = {group.members for own in by_rank.values() for group in own.values() if group.members}
    return max((*map(max, named), *by_rank), default=-1) + 1


def _communicator(
    number: int, key: GroupKey, users: set[int], told_size: int, world: int, backend: str
) -> Communicator:
    name, desc, members, place = key
    if not members:
        is_default = name == DEFAULT_NAME
        members = tuple(range(world)) if is_default else tuple(sorted(users))
        members += (-1,) * max(0, told_size - len(members))
    kind = _BACKENDS.get(backend, Backend.UNKNOWN)
    role, is_inferred = role_of(name, desc, kind, len(members), world)
    digest = hashlib.blake2b(f"{name}\0{desc}\0{members}".encode(), digest_size=7).digest()
    return Communicator(
        comm_id=number, comm_hash=int.from_bytes(digest, "little"), ordinal=place, name=name,
        desc=desc, role=role, is_role_inferred=is_inferred, members=members, backend=kind,
    )  # fmt: skip


def _told_sizes(
    dumps: Sequence[RankDump], owners: Mapping[int, Mapping[int, GroupKey]]
) -> dict[GroupKey, int]:
    """Members of the groups in which something was gathered: each rank puts in as much."""
    told: dict[GroupKey, set[int]] = defaultdict(set)
    for one in dumps:
        keys = owners[one.global_rank]
        gathers = [entry for entry in one.dump.entries if entry.op is Op.ALL_GATHER]
        for entry in gathers:
            if entry.pg_id in keys and _is_even(entry):
                told[keys[entry.pg_id]].add(entry.n_out // entry.n_in)
    return {key: sizes.pop() for key, sizes in told.items() if len(sizes) == 1}


def _is_even(entry: FlightEntry) -> bool:
    return entry.n_in > 0 and entry.n_out > 0 and entry.n_out % entry.n_in == 0


def _told_backends(
    dumps: Sequence[RankDump], owners: Mapping[int, Mapping[int, GroupKey]]
) -> dict[GroupKey, str]:
    told: dict[GroupKey, str] = {}
    for one in dumps:
        keys = owners[one.global_rank]
        newest = {entry.pg_id: entry.backend for entry in one.dump.entries}
        told |= {keys[pg_id]: backend for pg_id, backend in newest.items() if pg_id in keys}
    return told
