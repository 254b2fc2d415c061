"""Class 14, and two of class 5: data that are incomplete or cannot be, and traces read rightly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec.structs import replace

from comminsight.model.activity import Activity, ActivityKind, LaunchCount, NumberedOps
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause
from comminsight.semantics.kernel_kind import kind_of_kernel
from tests.builders.activities import US, comm, compute, in_steps, on_ranks
from tests.cases.field_case import Expected, FieldCase, Scene


def lockstep(
    n_ranks: int, n_ops: int, *, op_us: float, work_us: float, late: dict[tuple[int, int], float],
    clocks_us: dict[int, float] | None = None, label: str = "world", op: Op = Op.ALL_REDUCE,
) -> tuple[Activity, ...]:  # fmt: skip
    """Compute and a collective by turns; ``late[rank, n]`` is how much later a rank is there."""
    found, begin = [], 0.0
    for n in range(n_ops):
        waits = [late.get((rank, n), 0.0) for rank in range(n_ranks)]
        end = begin + work_us + max(waits) + op_us
        for rank, wait in enumerate(waits):
            came = begin + work_us + wait
            found += [
                compute(rank, begin, work_us + wait, step=n),
                comm(rank, op, came, end - came, size_bytes=1 << 20, comm_label=label, step=n),
            ]
        begin = end
    moved = clocks_us or {}
    by_rank = [[one for one in found if one.global_rank == rank] for rank in range(n_ranks)]
    return tuple(
        one
        for rank, own in enumerate(by_rank)
        for one in on_ranks([rank], own, clocks_us={rank: moved.get(rank, 0.0)})
    )


def job(activities: tuple[Activity, ...], n_ranks: int, **more: object) -> JobEvidence:
    return JobEvidence(world_size=n_ranks, activities=activities, **more)  # type: ignore[arg-type]


def ends_apart(folder: Path, *, n_ranks: int, n_ops: int, op_us: float, by_us: float) -> Scene:
    """One rank leaves some all-reduces long after the others, which cannot be. In the twin one
    rank's clock is ahead by as much, which whole clocks explain."""
    fault = [
        replace(one, end_ns=one.end_ns + round(by_us * US))
        if one.op and one.global_rank == n_ranks - 1 and one.step % 3 == 1
        else one
        for one in lockstep(n_ranks, n_ops, op_us=op_us, work_us=4 * by_us + op_us, late={})
    ]
    twin = lockstep(
        n_ranks, n_ops, op_us=op_us, work_us=40 * op_us, late={}, clocks_us={n_ranks - 1: by_us}
    )
    return Scene(
        job(tuple(fault), n_ranks),
        Expected((Cause.DATA_CORRUPT,), None, told=("evidence.unequal_ends",)),
        job(twin, n_ranks),
    )


def arrival_or_transfer(
    folder: Path, *, n_ranks: int, late_rank: int, op_us: float, late_us: float, label: str
) -> Scene:
    """A collective takes long because one rank always comes last; a baseline tells what it takes
    alone. In the twin another rank is last each time, and nobody is to be named."""
    n_ops = 3 * n_ranks
    always = {(late_rank, n): late_us for n in range(n_ops)}
    turns = {(n % n_ranks, n): late_us for n in range(n_ops)}
    known = JobEvidence(
        activities=lockstep(n_ranks, 5, op_us=op_us, work_us=10 * op_us, late={}, label=label)
    )
    told = ("evidence.arrivals",) + (() if label else ("evidence.by_order",))
    work_us = 2 * late_us
    return Scene(
        job(
            lockstep(n_ranks, n_ops, op_us=op_us, work_us=work_us, late=always, label=label),
            n_ranks, baseline=known,
        ),
        Expected((Cause.COMPUTE_STRAGGLER,), (late_rank,), (Cause.EXPOSED_COMM,
                 Cause.NO_OVERLAP_BY_DEPENDENCY), told),
        job(
            lockstep(n_ranks, n_ops, op_us=op_us, work_us=40 * late_us, late=turns, label=label),
            n_ranks,
        ),
    )  # fmt: skip


def clocks_apart(
    folder: Path, *, n_ranks: int, late_rank: int, ahead_rank: int, ahead_us: float, late_us: float
) -> Scene:
    """One rank's clock is ahead by more than another one is late: raw stamps would name the wrong
    one. In the twin only the clock is off."""
    n_ops = 24
    late = {(late_rank, n): late_us for n in range(n_ops)}
    clocks = {ahead_rank: ahead_us}
    fault = lockstep(n_ranks, n_ops, op_us=30, work_us=600, late=late, clocks_us=clocks)
    twin = lockstep(n_ranks, n_ops, op_us=30, work_us=600, late={}, clocks_us=clocks)
    accepted = (Cause.EXPOSED_COMM, Cause.NO_OVERLAP_BY_DEPENDENCY)
    return Scene(
        job(fault, n_ranks),
        Expected((Cause.COMPUTE_STRAGGLER,), (late_rank,), accepted, ("evidence.aligned",)),
        job(twin, n_ranks),
    )


def scattered_holes(folder: Path, *, n_ranks: int, n_ops: int, rank: int, n_holes: int) -> Scene:
    """One rank's file lacks records here and there, and its last one is there: nobody is absent.
    In the twin all ranks lack the small ops alike, as a size filter leaves them out."""
    rng = np.random.default_rng(n_ops)
    holes = set(rng.choice(np.arange(2, n_ops - 1), n_holes, replace=False).tolist())
    whole = tuple(range(1, n_ops + 1))
    fault = tuple(
        NumberedOps(
            global_rank=r, comm_label="world",
            numbers=tuple(n for n in whole if r != rank or n not in holes),
        )
        for r in range(n_ranks)
    )  # fmt: skip
    twin = tuple(
        NumberedOps(global_rank=r, comm_label="world", numbers=whole[::3]) for r in range(n_ranks)
    )
    return Scene(
        JobEvidence(world_size=n_ranks, numbered=fault),
        Expected((Cause.DATA_INCOMPLETE,), (), told=("evidence.holes",)),
        JobEvidence(world_size=n_ranks, numbered=twin),
    )


def sizes_that_cannot_be(folder: Path, *, n_ranks: int, size_bytes: int, every: int) -> Scene:
    """Sizes that no memory holds. The twin has large ones that a rank can have."""
    sound = lockstep(n_ranks, 20, op_us=10, work_us=900, late={})
    fault = tuple(
        replace(one, size_bytes=size_bytes) if one.op and one.step % every == 1 else one
        for one in sound
    )
    twin = tuple(replace(one, size_bytes=64 << 30) if one.op else one for one in sound)
    return Scene(
        job(fault, n_ranks),
        Expected((Cause.DATA_CORRUPT,), None, told=("evidence.absurd_size",)),
        job(twin, n_ranks),
    )


def clocks_that_drift(folder: Path, *, n_ranks: int, first: int, by_ms: float) -> Scene:
    """From one op on, the ends of one communicator lie before its beginnings. In the twin the ends
    are not known (0), as of ops in flight when the capture stopped."""
    sound = lockstep(n_ranks, 30, op_us=10, work_us=900, late={}, label="tp")
    fault = tuple(
        replace(one, end_ns=one.start_ns - round(by_ms * 1e6 * (one.step - first + 1)))
        if one.op and one.step >= first
        else one
        for one in sound
    )
    twin = tuple(replace(one, end_ns=0) if one.op and one.step == 29 else one for one in sound)
    return Scene(
        job(fault, n_ranks),
        Expected((Cause.DATA_CORRUPT,), None, told=("evidence.reversed",)),
        job(twin, n_ranks),
    )


def stamps_of_zero(folder: Path, *, n_ranks: int, every: int) -> Scene:
    """Beginnings of zero are unknown and no times. In the twin only a few ops are still open at the
    end of the file: no hang by itself."""
    sound = lockstep(n_ranks, 40, op_us=10, work_us=900, late={})
    fault = tuple(
        replace(one, start_ns=0) if one.op and one.step % every == 0 else one for one in sound
    )
    twin = tuple(replace(one, end_ns=0) if one.op and one.step > 36 else one for one in sound)
    return Scene(
        job(fault, n_ranks),
        Expected((Cause.DATA_INCOMPLETE,), None, told=("evidence.zero_stamps",)),
        job(twin, n_ranks),
    )


def names_of_kernels(folder: Path, *, n_ranks: int, name: str) -> Scene:
    """The trace names its communication as this library does: it must be found. In the twin the
    names are of nobody, and a trace of several ranks without communication is told."""

    def named(text: str) -> tuple[Activity, ...]:
        return tuple(
            replace(one, name=text, kind=kind_of_kernel(text)[0]) if one.op else one
            for one in lockstep(n_ranks, 12, op_us=400, work_us=600, late={})
        )

    return Scene(
        job(named(name), n_ranks),
        Expected((Cause.EXPOSED_COMM,), None, (Cause.NO_OVERLAP_BY_DEPENDENCY,)),
        job(named("mystery_kernel"), n_ranks),
        Expected((Cause.DATA_INCOMPLETE,), None, told=("evidence.no_communication",)),
    )


def waits_that_hide_nothing(folder: Path, *, n_ranks: int, name: str, comm_us: float) -> Scene:
    """A synchronisation that only stands in the trace lies over a collective: it hides nothing. In
    the twin a kernel computes there."""

    def step(covering: str) -> list[Activity]:
        kind = kind_of_kernel(covering)[0] if covering != "gemm" else ActivityKind.COMPUTE
        over = replace(compute(0, 1000, comm_us, stream=3), name=covering, kind=kind)
        return [compute(0, 0, 1000), comm(0, Op.ALL_REDUCE, 1000, comm_us), over]

    def made(covering: str) -> JobEvidence:
        return job(on_ranks(range(n_ranks), in_steps(step(covering), 6, 3000 + comm_us)), n_ranks)

    return Scene(
        made(name),
        Expected((Cause.EXPOSED_COMM,), None, (Cause.NO_OVERLAP_BY_DEPENDENCY,)),
        made("gemm"),
    )


def kernels_nobody_saw(folder: Path, *, n_ranks: int, n_launches: int, n_lost: int) -> Scene:
    """Fewer kernels than launches. In the twin all were seen."""

    def counted(rank: int, lost: int) -> LaunchCount:
        return LaunchCount(global_rank=rank, n_launches=n_launches, n_kernels=n_launches - lost)

    fault = tuple(counted(rank, n_lost * (rank == 0)) for rank in range(n_ranks))
    return Scene(
        JobEvidence(world_size=n_ranks, launches=fault),
        Expected((Cause.DATA_INCOMPLETE,), (), told=("evidence.lost_kernels",)),
        JobEvidence(world_size=n_ranks, launches=tuple(counted(r, 0) for r in range(n_ranks))),
    )


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        42,
        "ranks that leave one all-reduce apart",
        ends_apart,
        tuple(
            {"n_ranks": n, "n_ops": k, "op_us": o, "by_us": b}
            for n, k, o, b in ((4, 20, 40, 90), (16, 30, 200, 900), (2, 40, 15, 400))
        ),
    ),
    FieldCase(
        43,
        "transfer, or waiting for the last rank",
        arrival_or_transfer,
        tuple(
            {"n_ranks": n, "late_rank": r, "op_us": o, "late_us": s, "label": "tp"}
            for n, r, o, s in ((4, 2, 60, 420), (8, 7, 20, 200), (2, 0, 300, 900))
        ),
    ),
    FieldCase(
        110,
        "holes in the numbers of one rank",
        scattered_holes,
        tuple(
            {"n_ranks": n, "n_ops": k, "rank": r, "n_holes": h}
            for n, k, r, h in ((4, 2000, 2, 37), (8, 300, 0, 5), (64, 900, 63, 200))
        ),
    ),
    FieldCase(
        111,
        "sizes that cannot be",
        sizes_that_cannot_be,
        tuple(
            {"n_ranks": n, "size_bytes": s, "every": k}
            for n, s, k in ((2, 18446744073709543424, 3), (8, 1 << 60, 2), (4, -8, 5))
        ),
    ),
    FieldCase(
        114,
        "ends before beginnings",
        clocks_that_drift,
        tuple(
            {"n_ranks": n, "first": f, "by_ms": b}
            for n, f, b in ((2, 10, 300.0), (8, 1, 0.02), (4, 25, 1000.0))
        ),
    ),
    FieldCase(
        115, "stamps of zero", stamps_of_zero,
        tuple({"n_ranks": n, "every": k} for n, k in ((2, 2), (8, 10), (4, 1))),
    ),
    FieldCase(
        123,
        "clocks apart by more than a rank is late",
        clocks_apart,
        tuple(
            {"n_ranks": n, "late_rank": r, "ahead_rank": a, "ahead_us": c, "late_us": s}
            for n, r, a, c, s in ((2, 0, 1, 350, 100), (8, 3, 5, 100_000, 300), (4, 2, 2, 900, 150))
        ),
    ),
)  # fmt: skip
