"""The process groups a job creates, named the way torch names them.

The default group is ``"0"`` / ``default_pg``. Every further group takes the next integer as its
name on every rank, whether or not the rank is a member; its description is ``mesh_<dimension>``.
A dimension that spans the world reuses the default group; one of size 1 makes no group. The hash
of a gloo communicator is a 64-bit hash of that name. Megatron names its groups itself and makes
one for a dimension of the whole world too; a serving engine names them ``<dimension>:device``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from comminsight.model.event import COMM_DTYPE
from comminsight.model.ops import Backend, CommRole
from comminsight.model.ranges import range_compress
from comminsight.model.topology import Communicator
from comminsight.sim.layout import Naming, Schedule, SimLayout

_ROLE_OF_DIMENSION = {
    "tp": CommRole.TP,
    "pp": CommRole.PP,
    "dp": CommRole.DP,
    "ep": CommRole.EP,
    "cp": CommRole.CP,
    "edp": CommRole.EDP,
    "mp": CommRole.MP,
    "dist_opt": CommRole.DIST_OPT,
}
_MEGATRON_NAMES = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP_WITH_CP",
    "cp": "CONTEXT_PARALLEL_GROUP",
    "mp": "MODEL_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    "edp": "EXPERT_DATA_PARALLEL_GROUP",
    "dist_opt": "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP",
}
_SERVING_NAMES = {"tp": "tp:device", "dp": "dp:device", "ep": "moe_ep:device"}


@dataclass(frozen=True, slots=True)
class SimGroup:
    """One process group instance; ``comm_id`` is its place in creation order."""

    comm_id: int
    name: str
    desc: str
    role: CommRole
    members: tuple[int, ...]
    dimension: str = "world"

    @property
    def comm_hash(self) -> int:
        """64-bit hash of the name, equal on all members."""
        digest = hashlib.blake2b(self.name.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")


def groups_of(layout: SimLayout) -> tuple[SimGroup, ...]:
    """All groups of the job in creation order; the first is the default group."""
    world = tuple(range(layout.world_size))
    groups = [SimGroup(0, "0", "default_pg", CommRole.GLOBAL, world)]
    largest = layout.world_size - int(layout.naming is Naming.MESH)
    for dimension, member_lists in _dimensions(layout):
        for members in member_lists:
            if 1 < len(members) <= largest:
                comm_id = len(groups)
                role, desc = _ROLE_OF_DIMENSION[dimension], _description(layout, dimension)
                groups.append(
                    SimGroup(comm_id, str(comm_id), desc, role, tuple(members), dimension)
                )
    return tuple(groups)


def _description(layout: SimLayout, dimension: str) -> str:
    if layout.naming is Naming.MESH:
        return f"mesh_{dimension}"
    return (_MEGATRON_NAMES if layout.naming is Naming.MEGATRON else _SERVING_NAMES)[dimension]


def groups_by_dimension(layout: SimLayout, groups: tuple[SimGroup, ...]) -> list[dict[str, int]]:
    """Per rank: dimension to ``comm_id``; a dimension of the whole world is the default group."""
    found: list[dict[str, int]] = [{"world": 0} for _ in range(layout.world_size)]
    sizes = {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "ep": layout.ep}
    for dimension, size in sizes.items():
        if size == layout.world_size and layout.naming is Naming.MESH:
            for table in found:
                table[dimension] = 0
    for group in groups[1:]:
        for rank in group.members:
            found[rank][group.dimension] = group.comm_id
    return found


def comm_rows(groups: tuple[SimGroup, ...], global_rank: int, created_ns: int) -> np.ndarray:
    """Communicator table of one process (``COMM_DTYPE``): index 1 is the default group."""
    mine = [group for group in groups if global_rank in group.members]
    rows = np.zeros(len(mine), COMM_DTYPE)
    for position, group in enumerate(mine):
        row = rows[position]
        row["comm_hash"] = group.comm_hash
        row["created_ns"] = created_ns
        row["first_op_ns"] = created_ns
        row["comm_index"] = position + 1
        row["comm_rank"] = group.members.index(global_rank)
        row["comm_size"] = len(group.members)
        row["backend"] = Backend.GLOO
        row["name"] = group.name.encode()
        row["desc"] = group.desc.encode()
        row["members"] = range_compress(group.members).encode()
    return rows


def communicators_of(groups: tuple[SimGroup, ...]) -> tuple[Communicator, ...]:
    """The joined table of the run, with ``comm_id`` equal to the group's own."""
    return tuple(
        Communicator(
            comm_id=group.comm_id, comm_hash=group.comm_hash, ordinal=0, name=group.name,
            desc=group.desc, role=group.role, is_role_inferred=False, members=group.members,
            backend=Backend.GLOO,
        )
        for group in groups
    )  # fmt: skip


def _dimensions(layout: SimLayout) -> list[tuple[str, list[list[int]]]]:
    if layout.schedule is Schedule.MOE:
        firsts = range(0, layout.world_size, layout.ep)
        return [("ep", [list(range(first, first + layout.ep)) for first in firsts])]
    pps, dps, tps = range(layout.pp), range(layout.dp), range(layout.tp)
    at = layout.rank_at
    if layout.naming is not Naming.MESH:
        return [entry for entry in _named_dimensions(layout) if entry[0] in layout.dimensions]
    return [
        ("pp", [[at(p, d, t) for p in pps] for d in dps for t in tps]),
        ("dp", [[at(p, d, t) for d in dps] for p in pps for t in tps]),
        ("tp", [[at(p, d, t) for t in tps] for p in pps for d in dps]),
    ]


def _named_dimensions(layout: SimLayout) -> list[tuple[str, list[list[int]]]]:
    """Every dimension of a layout; ``cp`` and ``ep`` are inner parts of the ``dp`` coordinate."""
    pps, dps, tps = range(layout.pp), range(layout.dp), range(layout.tp)
    at, ep = layout.rank_at, layout.ep
    places = [(p, t) for p in pps for t in tps]
    return [
        ("dp", [[at(p, d, t) for d in dps] for p, t in places]),
        ("cp", [[at(p, d, t) for d in part] for p, t in places for part in _runs(dps, layout.cp)]),
        ("mp", [[at(p, d, t) for p in pps for t in tps] for d in dps]),
        ("tp", [[at(p, d, t) for t in tps] for p in pps for d in dps]),
        ("pp", [[at(p, d, t) for p in pps] for d in dps for t in tps]),
        ("ep", [[at(p, d, t) for d in part] for p, t in places for part in _runs(dps, ep)]),
        ("edp", [[at(p, d, t) for d in dps[first::ep]] for p, t in places for first in range(ep)]),
        ("dist_opt", [list(range(layout.world_size))]),
    ]


def _runs(numbers: range, length: int) -> list[range]:
    return [numbers[first : first + length] for first in range(0, len(numbers), length)]
