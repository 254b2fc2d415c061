"""CPU seconds per step of matching, pair waits and blame at 64 and 512 ranks, and of the pair waits
of 4,096 ranks.

Run: ``python benchmarks/pair_waits.py [ranks ...]``. Shape: tensor groups of 8, data groups of
8, a few world collectives, blocking ops with jitter; the ratio is against the matching itself.
The large step is TP 8 x PP 8 x DP 64 with 8.7 million events, for the native kernel alone.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from time import process_time

import numpy as np

from comminsight.analysis.blame import blame
from comminsight.analysis.columns import OpColumns
from comminsight.analysis.matching import match_ops
from comminsight.analysis.program import UNKNOWN_NS, step_program
from comminsight.analysis.waits import numpy_sweep, pairs_of, wait_columns
from comminsight.model.ops import Op, RecordKind
from comminsight.model.topology import Communicator
from comminsight.pipeline.kernels import pair_sweep

MATCHING, PAIR_WAITS = "matching", "pair waits, all ranks"
NATIVE = "pair waits, native kernel"
ONE_RANK, BLAME = "pairs of one rank", "blame, two steps"
GROUP, TENSOR_OPS, DATA_OPS, WORLD_OPS = 8, 400, 40, 3


def groups(n_ranks: int) -> list[tuple[int, ...]]:
    ranks = np.arange(n_ranks).reshape(-1, GROUP)
    strided = np.arange(n_ranks).reshape(GROUP, -1).T
    return [tuple(map(int, g)) for g in (*ranks, *strided)] + [tuple(range(n_ranks))]


def step_columns(n_ranks: int, comms: list[tuple[int, ...]]) -> OpColumns:
    """One step: the data and world ops stand evenly among the tensor ops."""
    rng = np.random.default_rng(n_ranks)
    n_groups = n_ranks // GROUP
    kinds = np.concatenate((np.zeros(TENSOR_OPS), np.ones(DATA_OPS), np.full(WORLD_OPS, 2)))
    place = np.concatenate([np.linspace(0, 1, n) for n in (TENSOR_OPS, DATA_OPS, WORLD_OPS)])
    now = np.zeros(n_ranks, np.int64)
    sets = [comms[:n_groups], comms[n_groups:-1], comms[-1:]]
    parts, seqs = [], [0, 0, 0]
    for kind in kinds[np.argsort(place, kind="stable")].astype(int):
        seqs[kind] += 1
        members = np.array(sets[kind])
        start = now[members] + rng.integers(500_000, 600_000, members.shape)
        end = start.max(axis=1, keepdims=True) + rng.integers(20_000, 25_000, members.shape)
        now[members] = end
        first = (0, n_groups, len(comms) - 1)[kind]
        comm = np.broadcast_to(first + np.arange(len(members))[:, None], members.shape)
        parts.append(
            [x.ravel() for x in (members, comm, np.full_like(members, seqs[kind]), start, end)]
        )
    rank, comm_id, seq, start_ns, end_ns = (np.concatenate(x) for x in zip(*parts, strict=True))
    order = np.lexsort((start_ns, rank))
    table = {name: np.zeros(len(rank), np.int64) for name in OpColumns.__slots__}
    table |= {
        "rank": rank,
        "comm_id": comm_id,
        "match_seq": seq,
        "start_ns": start_ns,
        "end_ns": end_ns,
    }
    table |= {"row": np.arange(len(rank)), "is_end_bound": rank < 0, "is_folded": rank < 0}
    table["kind"] += RecordKind.COLLECTIVE
    table["op"] += Op.ALL_REDUCE
    return OpColumns(**table).take(order)


def cpu_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """CPU time of the cheapest of ``repeats`` calls, so that busy neighbours do not count."""
    costs = []
    for _ in range(repeats):
        begin_s = process_time()
        work()
        costs.append(process_time() - begin_s)
    return min(costs)


def step_costs(n_ranks: int, repeats: int = 3) -> tuple[int, dict[str, float]]:
    """(ops in the step, CPU seconds by what was done)."""
    members = groups(n_ranks)
    comms = tuple(
        Communicator(comm_id=i, comm_hash=i, ordinal=0, members=m) for i, m in enumerate(members)
    )
    ops = step_columns(n_ranks, members)
    found = match_ops(ops, n_ranks, comms)
    entry = np.full(n_ranks, UNKNOWN_NS)
    steps = [step_program(found, entry, comms, n_ranks) for _ in range(2)]
    work: dict[str, Callable[[], object]] = {
        MATCHING: lambda: match_ops(ops, n_ranks, comms),
        PAIR_WAITS: lambda: numpy_sweep(*wait_columns(found), n_ranks),
        NATIVE: lambda: pair_sweep()(*wait_columns(found), n_ranks),
        ONE_RANK: lambda: pairs_of(found, 0),
        BLAME: lambda: blame(steps, n_ranks),
    }
    return ops.n_ops, {label: cpu_seconds(call, repeats) for label, call in work.items()}


def large_step(
    n_tensor: int = 2048, n_messages: int = 64, n_data: int = 10, n_world: int = 3
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Columns of TP 8 x PP 8 x DP 64: per rank so many collectives of each group, and messages to
    the next stage."""
    tp, pp, dp = 8, 8, 64
    n_ranks = tp * pp * dp
    rank = np.arange(n_ranks)
    stage, replica = rank // tp % pp, rank // (tp * pp)
    forward = rank[stage < pp - 1]
    n_instances = 0
    parts = []
    for members, group, times in (
        (rank, rank // tp, n_tensor),
        (np.r_[forward, forward + tp], np.r_[forward, forward], n_messages),
        (rank, rank % (tp * pp), n_data),
        (rank, replica * 0, n_world),
    ):
        n_groups = int(group.max()) + 1
        nth = np.arange(times)[:, None]
        instance = n_instances + group[None, :] * times + nth
        n_instances += n_groups * times
        share = (nth + 0.5) / times  # of the step
        parts.append((np.broadcast_to(members, instance.shape), instance, share + 0 * instance))
    who, instance, share = (np.concatenate([p[i].ravel() for p in parts]) for i in range(3))
    jitter_ns = np.random.default_rng(7).integers(0, 400_000, len(who))
    start_ns = (share * 4e9).astype(np.int64) + jitter_ns
    order = np.lexsort((start_ns, who))
    return who[order], instance[order], start_ns[order], n_ranks


def main() -> None:
    for n_ranks in map(int, sys.argv[1:] or ["64", "512"]):
        n_ops, costs = step_costs(n_ranks)
        print(f"{n_ranks} ranks, {n_ops} ops in the step")
        for label, cost_s in costs.items():
            print(f"  {label:26} {cost_s:8.3f} s {cost_s / costs[MATCHING]:6.1f} x matching")
    columns = large_step()
    cost_s = cpu_seconds(lambda: pair_sweep()(*columns))
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(f"{columns[-1]} ranks, {len(columns[0]) / 1e6:.1f} M ops in the step")
    print(f"  {NATIVE:26} {cost_s:8.3f} s; the process {peak_gb:.2f} GB at most, all columns in it")


if __name__ == "__main__":
    main()
