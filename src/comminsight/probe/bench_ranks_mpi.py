"""The program each rank of a benchmark over MPI runs: ``… -m comminsight.probe.bench_ranks_mpi``.

Importing mpi4py starts MPI: nobody but the launcher loads this file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mpi4py
import msgspec
import numpy as np
from mpi4py import MPI

from comminsight.format.openmpi_algorithm import DONE, MARK
from comminsight.model.bench import BenchPlan
from comminsight.probe.bench_turns import Timed, Turns, turns_of

Call = tuple[str, Callable[[], Any]]
WORLD = MPI.COMM_WORLD
# broadcast before what may call it: a function is told at its first call alone
FIRST_CALLS = ("bcast", "allgather", "reduce_scatter", "alltoall", "allreduce")


def calls_of(name: str, n: int, dtype: str) -> list[Call]:
    """The calls that are timed together, each with its op; buffers are made here."""
    data, work = np.zeros(n, dtype), np.zeros(n, dtype)
    n_ranks = WORLD.size
    part = np.zeros(n // n_ranks, dtype)
    whole = np.zeros(n * n_ranks if name == "all_gather" else 0, dtype)
    right, left = (WORLD.rank + 1) % n_ranks, (WORLD.rank - 1) % n_ranks
    counts = [n // n_ranks] * n_ranks
    scatter = ("reduce_scatter", lambda: WORLD.Reduce_scatter(data, part, counts))
    calls: dict[str, list[Call]] = {
        "all_reduce": [("allreduce", lambda: WORLD.Allreduce(data, work))],
        "reduce_scatter+all_gather": [scatter, ("allgather", lambda: WORLD.Allgather(part, work))],
        "reduce_scatter": [scatter],
        "all_gather": [("allgather", lambda: WORLD.Allgather(data, whole))],
        "broadcast": [("bcast", lambda: WORLD.Bcast(work, 0))],
        "all_to_all": [("alltoall", lambda: WORLD.Alltoall(data, work))],
        "send_recv": [("", lambda: WORLD.Sendrecv(data, right, recvbuf=work, source=left))],
    }
    return calls[name]


def timed_alike(turns: Turns, calls: list[Call]) -> Timed:
    """The calls together, begun after a barrier."""

    def whole() -> None:
        for _, call in calls:
            call()

    WORLD.Barrier()
    return turns.timed(whole)


def first_calls(cases: list[list[Call]]) -> None:
    """Call each op with each payload once, with marks between what the dynamic linker writes."""
    for op in FIRST_CALLS:
        for name, call in (one for case in cases for one in case):
            if name == op:
                _mark(f"{MARK}{op}")
                call()
    _mark(DONE)


def _mark(line: str) -> None:
    if linker_log := os.environ.get("LD_DEBUG_OUTPUT"):
        with Path(f"{linker_log}.{os.getpid()}").open("a", encoding="utf-8") as lines:
            lines.write(f"{line}\n")


def halves_agree(dtype: str) -> bool:
    """Whether reduce_scatter then all_gather gives all_reduce's numbers; small whole numbers, so
    that the order of sums does not matter."""
    n = 64
    data = (np.arange(n * WORLD.size) % 7 + WORLD.rank).astype(dtype)
    whole, halves, part = np.empty_like(data), np.empty_like(data), np.empty(n, dtype)
    WORLD.Allreduce(data, whole)
    WORLD.Reduce_scatter(data, part, [n] * WORLD.size)
    WORLD.Allgather(part, halves)
    return bool(np.array_equal(whole, halves))


def versions() -> Iterator[tuple[str, object]]:
    """What the numbers hold for."""
    yield "mpi", MPI.Get_library_version().partition(",")[0].strip()
    yield "mpi4py", mpi4py.__version__


def main(plan_path: str, out: str) -> None:
    """Measure the plan's cases round by round: each round has every case once."""
    plan = msgspec.json.decode(Path(plan_path).read_bytes(), type=BenchPlan)
    cases = [calls_of(name, n, plan.dtype) for name, n in plan.cases()]
    first_calls(cases)
    agree = halves_agree(plan.dtype) if "reduce_scatter" in plan.collectives else None
    with turns_of(Path(out), WORLD.rank) as turns:
        for is_counted in turns.begin(dict(versions()) | {"agree": agree}):
            timed_alike(turns, cases[0])  # the first call after a rest is slow
            measured = [timed_alike(turns, calls) for calls in cases]
            if is_counted:
                turns.keep(measured)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
