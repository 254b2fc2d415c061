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

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.clock import SYNCHRONISING_OPS
from comminsight.analysis.matching import ROOTED_OPS, UNEVEN_OPS, Instances
from comminsight.model.ops import Op
from comminsight.model.topology import Communicator

MAX_LAG = 8  # how many ops back a program may wait for; older ends are behind newer ones
UNKNOWN_NS = np.iinfo(np.int64).min
_DEPENDS_ON_ROOT = (Op.BROADCAST, Op.SCATTER)
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class StepProgram:
    """One step's ops of all ranks, sorted by (rank, start); arrays ``(n_ops,)`` unless noted.

    ``bounds[rank] : bounds[rank + 1]`` are a rank's rows; ``program[rank]`` is a hash of its
    signatures. ``entry_ns[rank]``: when the program was free before its first op, UNKNOWN_NS if
    nothing was seen before. ``gate``: 0 = own start only, 1 = own and root, 2 = all members.
    ``wait_lags`` bit l-1: waits for the end of the op l places back. ``work_ns`` and
    ``transfer_ns`` as in the module's equations; the excess columns are what of them is beyond
    the normal of the same place (see ``normal``).
    """

    rank: np.ndarray
    instance: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    signature: np.ndarray
    can_run_alone: np.ndarray
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


@dataclass(frozen=True, slots=True)
class ProgramClass:
    """All (step, rank) that ran the same program; matrices are ``(n_runs, n_ops)``."""

    runs: tuple[tuple[int, int], ...]
    start_ns: np.ndarray
    end_ns: np.ndarray


def step_program(
    found: Instances, entry_ns: np.ndarray, communicators: Sequence[Communicator], world_size: int
) -> StepProgram:
    """The step's rows in program order, with signatures; durations are filled by ``infer``."""
    ops = found.ops
    order = np.lexsort((ops.row, found.start_ns, ops.rank))
    rank, instance, start_ns = ops.rank[order], found.instance[order], found.start_ns[order]
    last_ns = np.full(found.n_instances, UNKNOWN_NS)
    np.maximum.at(last_ns, instance, start_ns)
    sizes = np.array([c.comm_size for c in communicators] or [0], np.int64)
    op, comm_rank, peer = ops.op[order], ops.comm_rank[order], ops.peer[order]
    signature = _signatures(found, order, sizes, world_size)
    bounds = np.searchsorted(rank, np.arange(found.n_ranks + 1))
    root_ns = np.full(found.n_instances, UNKNOWN_NS)
    is_root = np.isin(op, [int(o) for o in ROOTED_OPS]) & (peer == comm_rank)
    root_ns[instance[is_root]] = start_ns[is_root]
    follows_root = np.isin(op, [int(o) for o in _DEPENDS_ON_ROOT]) & ~is_root
    zeros = np.zeros(len(rank), np.int64)
    return StepProgram(
        rank=rank,
        instance=instance,
        start_ns=start_ns,
        end_ns=_completion_ns(found, last_ns)[order],
        signature=signature,
        can_run_alone=~np.isin(op, [int(o) for o in (*SYNCHRONISING_OPS, Op.RECV)]),
        root_start_ns=np.where(follows_root, root_ns[instance], UNKNOWN_NS),
        last_start_ns=last_ns[instance],
        bounds=bounds,
        program=_program_hash(signature, rank, bounds),
        entry_ns=entry_ns,
        gate=zeros.copy(),
        wait_lags=zeros.copy(),
        work_ns=zeros.copy(),
        transfer_ns=zeros.copy(),
        work_excess_ns=zeros.copy(),
        transfer_excess_ns=zeros.copy(),
    )


def program_classes(steps: Sequence[StepProgram]) -> list[ProgramClass]:
    """(step, rank) grouped by equal program, in order of first appearance."""
    runs: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for s, step in enumerate(steps):
        n_ops = np.diff(step.bounds)
        for rank in np.flatnonzero(n_ops):
            runs[int(step.program[rank]), int(n_ops[rank])].append((s, int(rank)))
    classes = []
    for members in runs.values():
        rows = [(steps[s], slice(*steps[s].bounds[rank : rank + 2])) for s, rank in members]
        classes.append(
            ProgramClass(
                runs=tuple(members),
                start_ns=np.stack([step.start_ns[where] for step, where in rows]),
                end_ns=np.stack([step.end_ns[where] for step, where in rows]),
            )
        )
    return classes


def gather(steps: Sequence[StepProgram], runs: ProgramClass, column: str) -> np.ndarray:
    """A column of all runs of the class, ``(n_runs, n_ops)``."""
    parts = []
    for s, rank in runs.runs:
        begin, end = steps[s].bounds[rank : rank + 2]
        parts.append(getattr(steps[s], column)[begin:end])
    return np.stack(parts)


def scatter(
    steps: Sequence[StepProgram], runs: ProgramClass, column: str, values: np.ndarray
) -> None:
    """Write ``(n_runs, n_ops)`` values back into a column."""
    for (s, rank), row in zip(runs.runs, values, strict=True):
        begin, end = steps[s].bounds[rank : rank + 2]
        getattr(steps[s], column)[begin:end] = row


def infer(steps: Sequence[StepProgram], runs: ProgramClass) -> tuple[np.ndarray, np.ndarray]:
    """(work, transfer) of the class, ``(n_runs, n_ops)`` ns; also writes them and their edges.

    Both may be negative only where clocks of different nodes disagree.
    """
    start_ns, end_ns = runs.start_ns, runs.end_ns
    base_ns = np.empty_like(start_ns)
    base_ns[:, 0] = [_entry(steps[s], rank) for s, rank in runs.runs]
    base_ns[:, 1:] = start_ns[:, :-1]
    lags = np.zeros(start_ns.shape[1], np.int64)
    for lag in range(1, min(MAX_LAG, start_ns.shape[1] - 1) + 1):
        waited = (end_ns[:, :-lag] <= start_ns[:, lag:]).all(axis=0)
        lags[lag:] |= waited.astype(np.int64) << (lag - 1)
        later = np.where(waited, end_ns[:, :-lag], base_ns[:, lag:])
        base_ns[:, lag:] = np.maximum(base_ns[:, lag:], later)
    # an end that the previous op waited for is implied by the previous start
    lags[1:] &= ~(lags[:-1] << 1)
    gate, gate_ns = _gates(steps, runs)
    work_ns, transfer_ns = start_ns - base_ns, end_ns - gate_ns
    shape = start_ns.shape
    scatter(steps, runs, "wait_lags", np.broadcast_to(lags, shape))
    scatter(steps, runs, "gate", np.broadcast_to(gate, shape))
    scatter(steps, runs, "work_ns", work_ns)
    scatter(steps, runs, "transfer_ns", transfer_ns)
    return work_ns, transfer_ns


def _entry(step: StepProgram, rank: int) -> int:
    """When the rank was free before its first op; the step's earliest start where unknown."""
    entry_ns = int(step.entry_ns[rank])
    return int(step.start_ns.min()) if entry_ns == UNKNOWN_NS else entry_ns


def _gates(steps: Sequence[StepProgram], runs: ProgramClass) -> tuple[np.ndarray, np.ndarray]:
    """Gate kind per place and the gate's instant per run."""
    last_ns = gather(steps, runs, "last_start_ns")
    root_ns = gather(steps, runs, "root_start_ns")
    alone = gather(steps, runs, "can_run_alone").any(axis=0)
    waits_for_all = (last_ns <= runs.end_ns).all(axis=0) | ~alone
    follows_root = (root_ns != UNKNOWN_NS).all(axis=0)
    gate = np.where(waits_for_all, 2, np.where(follows_root, 1, 0))
    own = runs.start_ns
    gate_ns = np.where(gate == 2, last_ns, np.where(gate == 1, np.maximum(own, root_ns), own))
    return gate, gate_ns


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
    size_bytes = np.where(np.isin(ops.op, [int(op) for op in UNEVEN_OPS]), 0, ops.size_bytes)
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
