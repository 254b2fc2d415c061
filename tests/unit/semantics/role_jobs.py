"""Jobs made by hand for roles: programs over groups of a mesh, as the traces of all their ranks.

Nothing waits for another rank: roles are read from each session's own ops. A program is written
once and run by every rank. ``is_serial`` is a GPU, where ops of one communicator follow each other
and begin when the one before has ended; without it they begin when they are called.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import P2P_OPS, CommRole, DType, Op, OpState, RecordKind
from comminsight.model.topology import Communicator
from comminsight.model.trace import RankTrace
from comminsight.semantics.parallel_layout import RankCoordinates, parallel_layout
from comminsight.semantics.role_join import JoinedRoles, join_roles
from tests.builders import identity

US = 1_000
MIB = 1 << 20
Axes = tuple[str, ...]


@dataclass(frozen=True)
class Mesh:
    """Sizes by axis, the innermost first; a group is named by the axes that it goes over."""

    sizes: dict[str, int]

    @property
    def world_size(self) -> int:
        return int(np.prod(list(self.sizes.values())))

    def coordinates(self, rank: int) -> dict[str, int]:
        found = {}
        for axis, size in self.sizes.items():
            rank, found[axis] = divmod(rank, size)
        return found

    def groups(self, axes: Axes) -> Iterator[tuple[int, ...]]:
        """Member lists of all groups over these axes."""
        strides = dict(
            zip(self.sizes, np.cumprod([1, *self.sizes.values()]).tolist(), strict=False)
        )
        inside = [axis for axis in self.sizes if axis in axes]
        outside = [axis for axis in self.sizes if axis not in axes]

        def ranks(over: list[str]) -> list[int]:
            spans = [[strides[axis] * i for i in range(self.sizes[axis])] for axis in over]
            return sorted(map(sum, product(*spans)))

        for base in ranks(outside):
            yield tuple(base + offset for offset in ranks(inside))


@dataclass
class Script:
    """Writes the ops of one rank. Groups of one rank do not exist: calls on them are left out."""

    rank: int
    comm_index: dict[str, int]
    members: dict[str, tuple[int, ...]]
    rng: random.Random
    is_serial: bool
    rows: list[tuple[int, ...]] = field(default_factory=list)
    now_ns: int = 10**9
    busy_ns: dict[str, int] = field(default_factory=dict)
    n_groups: int = 0

    def size(self, group: str) -> int:
        return len(self.members[group]) if group in self.members else 1

    def place(self, group: str) -> int:
        return self.members[group].index(self.rank) if group in self.members else 0

    def work(self, us: float) -> None:
        self.now_ns += int(us * US * self.rng.uniform(0.9, 1.1))

    def issue(
        self, group: str, op: Op, size_bytes: int, *, dtype: DType = DType.BFLOAT16,
        peer: int = -1, group_id: int = 0,
    ) -> int:  # fmt: skip
        """Enters an op; when it ends."""
        if group not in self.comm_index:
            return self.now_ns
        free_ns = max(self.now_ns, self.busy_ns.get(group, 0))
        start_ns = free_ns if self.is_serial else self.now_ns
        cost_ns = int((20 * US + size_bytes / 50) * self.rng.uniform(0.95, 1.1))
        end_ns = free_ns + cost_ns
        self.busy_ns[group] = end_ns
        self.now_ns += self.rng.randrange(1, 2 * US)
        self.rows.append(
            (start_ns, end_ns, self.comm_index[group], op, size_bytes, dtype, peer, group_id)
        )
        return end_ns

    def wait(self, *ends_ns: int) -> None:
        self.now_ns = max(self.now_ns, *ends_ns)

    def call(self, group: str, op: Op, size_bytes: int, *, dtype: DType = DType.BFLOAT16) -> None:
        self.wait(self.issue(group, op, size_bytes, dtype=dtype))

    def batch(self) -> np.ndarray:
        """``OP_DTYPE`` in order of start."""
        rows = np.zeros(len(self.rows), OP_DTYPE)
        names = (
            "start_ns", "end_ns", "comm_index", "op", "size_bytes", "dtype", "peer_or_root",
            "group_id",
        )  # fmt: skip
        for name, column in zip(names, zip(*self.rows, strict=True), strict=True):
            rows[name] = column
        rows["kind"] = np.where(
            np.isin(rows["op"], tuple(P2P_OPS)), RecordKind.P2P, RecordKind.COLLECTIVE
        )
        rows["state"] = OpState.DONE
        rows["seq"] = rows["op_seq"] = np.arange(1, len(rows) + 1)
        return rows[np.argsort(rows["start_ns"], kind="stable")]


Program = Callable[[Script], None]


@dataclass(frozen=True)
class Job:
    """``axes`` of each group by its name; ``program`` writes the whole run of one rank."""

    mesh: Mesh
    axes: dict[str, Axes]
    program: Program
    is_serial: bool = True
    label: str = ""


@dataclass(frozen=True)
class Read:
    """What was made of a job: the name of each communicator's group in the job beside its role."""

    joined: JoinedRoles
    found: RankCoordinates
    groups: tuple[str, ...]
    used: frozenset[int]
    ranks: tuple[RankTrace, ...]

    def roles(self) -> list[tuple[str, Communicator]]:
        """(group, communicator) of those that were used."""
        pairs = zip(self.groups, self.joined.communicators, strict=True)
        return [(group, comm) for group, comm in pairs if comm.comm_id in self.used]


def _role_by_size(members: tuple[int, ...], world_size: int) -> CommRole:
    """What the catalog knows of a communicator of the plugin alone."""
    return CommRole.GLOBAL if len(members) == world_size else CommRole.UNKNOWN


def traces(job: Job, seed: int = 0) -> tuple[list[Communicator], list[str], list[RankTrace]]:
    """Communicators without names, the name of the group of each, and what the ranks did."""
    communicators: list[Communicator] = []
    groups: list[str] = []
    for name, axes in job.axes.items():
        for members in job.mesh.groups(axes):
            if len(members) > 1:
                comm_id = len(communicators)
                communicators.append(
                    Communicator(
                        comm_id=comm_id, comm_hash=comm_id + 1, ordinal=0, members=members,
                        is_role_inferred=True,
                        role=_role_by_size(members, job.mesh.world_size),
                    )
                )  # fmt: skip
                groups.append(name)
    ranks = []
    for rank in range(job.mesh.world_size):
        mine = [c for c in communicators if rank in c.members]
        script = Script(
            rank,
            {groups[c.comm_id]: index for index, c in enumerate(mine, 1)},
            {groups[c.comm_id]: c.members for c in mine},
            random.Random(seed * 1_000 + rank),
            job.is_serial,
        )
        job.program(script)
        ids = np.array([-1, *(c.comm_id for c in mine)], np.int64)
        ranks.append(RankTrace(identity(rank, job.mesh.world_size), script.batch(), ids))
    return communicators, groups, ranks


def read(job: Job, seed: int = 0, *, lost: float = 0.0) -> Read:
    """The roles and the layout of the whole job, of whose records some are ``lost``."""
    communicators, groups, ranks = traces(job, seed)
    if lost:
        chance = np.random.default_rng(seed)
        ranks = [replace(r, ops=r.ops[chance.random(len(r.ops)) >= lost]) for r in ranks]
    joined = join_roles(communicators, ranks, job.mesh.world_size)
    found = parallel_layout(
        joined.communicators, job.mesh.world_size, joined.world_purpose,
        n_undecided=len(joined.undecided),
    )  # fmt: skip
    used = {int(i) for rank in ranks for i in np.unique(rank.comm_ids_of(rank.ops["comm_index"]))}
    return Read(joined, found, tuple(groups), frozenset(used), tuple(ranks))
