"""Each rank's program within a step, read off its ops: what waited for what, and own work.

For every op of a rank in start order the model has two durations that add up to what was seen:

    start = base + work      base  = when the program was free: the latest of the previous start
                                     and the ends it waited for
    end   = gate + transfer  gate  = when the op could run: its own start and the starts of the
                                     members it depends on

Which ends a program waits for is not recorded (an asynchronous op returns at once), so it is
inferred: an op waited for an earlier end if it started after that end in *every* observation of
the same place in the program, over all steps and all ranks that run the same program. A DDP
bucket overlapped by backward is contradicted in some step and drops out; the op after the final
wait is never contradicted. In the same way a send depends on its receiver, and a root on the
others, only if that was never contradicted. Nothing here depends on flags or on the library.

*Ranks of the same program* have the same sequence of signatures (op, size, communicator size, and
for P2P the place in a communicator smaller than the world, so that pipeline stages stay apart).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.clock import SYNCHRONISING_OPS
from comminsight.analysis.matching import IS_ROOTED, IS_UNEVEN, Instances, op_table
from comminsight.model.ops import Op
from comminsight.model.topology import Communicator

MAX_LAG = 8  # how many ops back a program may wait for; older ends are behind newer ones
UNKNOWN_NS = np.iinfo(np.int64).min
INFERRED = (
    "gate", "wait_lags", "work_ns", "transfer_ns", "work_excess_ns", "transfer_excess_ns",
)  # fmt: skip
_DEPENDS_ON_ROOT = op_table((Op.BROADCAST, Op.SCATTER))
_NEEDS_OTHERS = op_table((*SYNCHRONISING_OPS, Op.RECV))
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class StepProgram:
    """One step's ops of all ranks, sorted by (rank, start); arrays ``(n_ops,)`` unless noted.

    ``bounds[rank] : bounds[rank + 1]`` are a rank's rows; ``program[rank]`` is a hash of its
    signatures. ``entry_ns[rank]``: when the program was free before its first op, UNKNOWN_NS if
    nothing was seen before. The rest is zero until the step was inferred beside the others.
    ``gate``: 0 = own start only, 1 = own and root, 2 = all members. ``wait_lags`` bit l-1: waits
    for the end of the op l places back. ``work_ns`` and ``transfer_ns`` as in the module's
    equations; the excess columns are what of them is beyond the normal of the same place (see
    ``normal``). Steps of equal layout share their arrays (see ``batches``).

    ``has_opaque_transfer`` and ``has_opaque_work`` mark durations that hold waits of which nobody
    knows for whom; they are never beyond the normal. Ops whose run was not seen are left out.
    """

    rank: np.ndarray
    instance: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    can_run_alone: np.ndarray
    has_opaque_transfer: np.ndarray
    has_opaque_work: np.ndarray
    root_start_ns: np.ndarray
    last_start_ns: np.ndarray
    bounds: np.ndarray
    program: np.ndarray
    entry_ns: np.ndarray
    gate: np.ndarray
    wait_lags: np.ndarray
    work_ns: np.ndarray
    transfer_ns: np.ndarray
    work_excess_ns: np.ndarray
    transfer_excess_ns: np.ndarray

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.program)


def step_program(
    found: Instances, entry_ns: np.ndarray, communicators: Sequence[Communicator], world_size: int
) -> StepProgram:
    """The step's rows in program order, with signatures; what is inferred is still zero."""
    ops = found.ops
    order = program_order(found)
    rank, instance, start_ns = ops.rank[order], found.instance[order], found.start_ns[order]
    last_ns = np.full(found.n_instances, UNKNOWN_NS)
    np.maximum.at(last_ns, instance, start_ns)
    opaque_transfer, opaque_work = _opaque(found)
    sizes = np.array([c.comm_size for c in communicators] or [0], np.int64)
    op, comm_rank, peer = ops.op[order], ops.comm_rank[order], ops.peer[order]
    signature = _signatures(found, order, sizes, world_size)
    bounds = np.searchsorted(rank, np.arange(found.n_ranks + 1))
    root_ns = np.full(found.n_instances, UNKNOWN_NS)
    is_root = IS_ROOTED[op] & (peer == comm_rank)
    root_ns[instance[is_root]] = start_ns[is_root]
    follows_root = _DEPENDS_ON_ROOT[op] & ~is_root
    root_start_ns = np.broadcast_to(np.int64(UNKNOWN_NS), len(rank))  # takes no memory
    if follows_root.any():
        root_start_ns = np.where(follows_root, root_ns[instance], UNKNOWN_NS)
    return StepProgram(
        rank=rank,
        instance=instance,
        start_ns=start_ns,
        end_ns=_completion_ns(found, last_ns)[order],
        can_run_alone=~_NEEDS_OTHERS[op],
        has_opaque_transfer=opaque_transfer[order],
        has_opaque_work=opaque_work[order],
        root_start_ns=root_start_ns,
        last_start_ns=last_ns[instance],
        bounds=bounds,
        program=_program_hash(signature, rank, bounds),
        entry_ns=entry_ns,
        **dict.fromkeys(INFERRED, np.broadcast_to(np.int64(0), len(rank))),
    )


def program_order(found: Instances) -> np.ndarray:
    """Rows by (rank, start, row), which they mostly are already, without those whose run was not
    seen."""
    rank, start_ns, row = found.ops.rank, found.start_ns, found.ops.row
    if found.ops.is_untimed.any():
        order = np.lexsort((row, start_ns, rank))
        timed: np.ndarray = order[~found.ops.is_untimed[order]]
        return timed
    same, later = rank[1:] == rank[:-1], start_ns[1:] > start_ns[:-1]
    later |= (start_ns[1:] == start_ns[:-1]) & (row[1:] > row[:-1])
    if np.all((rank[1:] > rank[:-1]) | (same & later)):
        return np.arange(len(rank))
    return np.lexsort((row, start_ns, rank))


def _opaque(found: Instances) -> tuple[np.ndarray, np.ndarray]:
    """(transfer, work) of every row: is somebody's wait in it that cannot be told?

    A P2P op without one known partner waits for nobody knows whom. What a rank waited for in an op
    that was only seen called shows as work later on: from there on its work tells nothing.
    """
    ops = found.ops
    if not ops.is_untimed.any():
        return ops.is_peerless, np.zeros(ops.n_ops, bool)
    has_untimed = np.bincount(found.instance[ops.is_untimed], minlength=found.n_instances) > 0
    since_ns = np.full(found.n_ranks, np.iinfo(np.int64).max)
    np.minimum.at(since_ns, ops.rank[ops.is_untimed], found.start_ns[ops.is_untimed])
    return ops.is_peerless | has_untimed[found.instance], found.start_ns >= since_ns[ops.rank]


def _completion_ns(found: Instances, last_ns: np.ndarray) -> np.ndarray:
    """When each row's op was over. The end of a P2P op is often only seen when its wait returns,
    long after; both halves are over once either is, but not before both have begun."""
    first_end = np.full(found.n_instances, np.iinfo(np.int64).max)
    np.minimum.at(first_end, found.instance, found.end_ns)
    both_ns = np.maximum(first_end, last_ns)[found.instance]
    paired = (found.is_p2p & (found.n_members == 2))[found.instance]
    is_end_bound = found.ops.is_end_bound & paired
    return np.where(is_end_bound, np.minimum(found.end_ns, both_ns), found.end_ns)


def _signatures(
    found: Instances, order: np.ndarray, comm_sizes: np.ndarray, world_size: int
) -> np.ndarray:
    ops = found.ops
    size_bytes = np.where(IS_UNEVEN[ops.op], 0, ops.size_bytes)
    comm_size = comm_sizes[ops.comm_id]
    is_staged = found.is_p2p[found.instance] & (comm_size < world_size)
    place = np.where(is_staged, ops.comm_rank + 1, 0)
    signature = np.zeros(len(order), np.uint64)
    for part in (ops.op, size_bytes, comm_size, place):
        signature = (signature ^ part[order].astype(np.uint64)) * _MIX
        signature ^= signature >> np.uint64(29)
    return signature


def _program_hash(signature: np.ndarray, rank: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    place = (np.arange(len(rank)) - bounds[rank]).astype(np.uint64)
    mixed = (signature ^ (place * _MIX)) * _MIX
    mixed ^= mixed >> np.uint64(31)
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed * _MIX, dtype=np.uint64)))
    hashed: np.ndarray = (total[bounds[1:]] - total[bounds[:-1]]).astype(np.int64)
    return hashed
