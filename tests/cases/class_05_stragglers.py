"""Classes 5 and 6: who makes the steps long, and why, from the measures of simulated jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from comminsight.model.verdict import Cause
from comminsight.sim import LateRank, SimLayout, ddp_layout, fsdp2_layout, megatron_layout
from tests.builders.speed import MS, judged, pauses_at
from tests.cases.field_case import Expected, FieldCase, Scene

LAYOUTS: dict[str, Callable[[int], SimLayout]] = {
    "ddp": ddp_layout,
    "fsdp": fsdp2_layout,
    "pipeline": lambda n: megatron_layout(1, 2, n // 2),
}


def layout_of(kind: str, n_ranks: int) -> SimLayout:
    return LAYOUTS[kind](n_ranks)


def tokens_that_move(folder: Path, *, kind: str, n_ranks: int, extra_ms: float) -> Scene:
    """The rank that experts give most tokens is late; another one in each step. In the twin the
    same ranks are late, and the tokens are even."""
    steps, rng = 60, np.random.default_rng(n_ranks)
    heavy = [step % n_ranks for step in range(steps)]
    faults = pauses_at([(s, r, extra_ms) for s, r in enumerate(heavy)])
    even = rng.integers(95, 106, (steps, n_ranks)) * 10_000
    moved = even.copy()
    moved[np.arange(steps), heavy] *= 2
    layout = layout_of(kind, n_ranks)
    return Scene(
        judged(layout, faults, steps=steps, moved_bytes=moved),
        Expected((Cause.LOAD_IMBALANCE,), (), told=("evidence.load_moves",)),
        judged(layout, faults, steps=steps, moved_bytes=even),
        Expected((Cause.HOST_PAUSE,), ()),
    )


def slow_input(
    folder: Path, *, kind: str, n_ranks: int, rank: int, extra_ms: float, probability: float
) -> Scene:
    """One rank waits for its input in most steps. In the twin it is as late, and its wait for input
    is that of its peers: nothing then says more than that it is late."""
    steps, rng = 50, np.random.default_rng(rank)
    faults = [LateRank(rank=rank, extra_ns=round(extra_ms * MS), probability=probability)]
    layout = layout_of(kind, n_ranks)
    usual_ns = rng.integers(0, MS // 2, (steps, n_ranks))
    waits_ns = usual_ns.copy()
    waits_ns[:, rank] += round(extra_ms * MS)
    told = ("evidence.input_wait",)
    return Scene(
        judged(layout, faults, steps=steps, input_wait_ns=waits_ns),
        Expected((Cause.INPUT_STRAGGLER,), (rank,), told=told),
        judged(layout, faults, steps=steps, input_wait_ns=usual_ns),
        Expected((Cause.COMPUTE_STRAGGLER,), (rank,)),
    )


def step_times_alone(folder: Path, *, kind: str, n_ranks: int) -> Scene:
    """Slow steps, and one rank's record alone: nobody can be named. The twin is healthy."""
    layout = layout_of(kind, n_ranks)
    faults = [LateRank(rank=n_ranks - 1, extra_ns=40 * MS, from_step=20)]
    return Scene(
        judged(layout, faults, steps=40, seen=[0]),
        Expected(told=("missing.ranks",)),
        judged(layout, [], steps=40),
    )


def collector(
    folder: Path, *, kind: str, n_ranks: int, ms: float, share: float, seed: int
) -> Scene:
    """In a share of the steps one rank or another stops for about the same time. In the twin the
    same ranks stop for very different times: an uneven input would look like it."""
    steps, rng = 120, np.random.default_rng(seed)
    when = [s for s in range(steps) if rng.random() < share]
    who = rng.integers(0, n_ranks, len(when))
    alike = [(s, int(r), ms + rng.normal() * ms / 20) for s, r in zip(when, who, strict=True)]
    uneven = [(s, r, rng.uniform(0.15, 1.5) * ms) for s, r, _ in alike]
    layout = layout_of(kind, n_ranks)
    return Scene(
        judged(layout, pauses_at(alike), steps=steps, seed=seed),
        Expected((Cause.HOST_PAUSE,), (), told=("action.check_collector",)),
        judged(layout, pauses_at(uneven), steps=steps, seed=seed),
    )


def uneven_delays(folder: Path, *, kind: str, n_ranks: int, seed: int) -> Scene:
    """Any rank is late for any time: the wait for input is what would decide. The twin is calm."""
    steps, rng = 120, np.random.default_rng(seed)
    when = [
        (s, int(rng.integers(n_ranks)), rng.uniform(10, 90))
        for s in range(steps)
        if rng.random() < 0.5
    ]
    layout = layout_of(kind, n_ranks)
    return Scene(
        judged(layout, pauses_at(when), steps=steps, seed=seed),
        Expected(told=("missing.input_waits", "action.record_input")),
        judged(layout, [], steps=steps, seed=seed),
    )


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        39,
        "tokens that move",
        tokens_that_move,
        tuple(
            {"kind": k, "n_ranks": n, "extra_ms": ms}
            for k, n, ms in (("ddp", 8, 20.0), ("fsdp", 16, 30.0), ("pipeline", 8, 60.0))
        ),
    ),
    FieldCase(
        40,
        "one rank waits for its input",
        slow_input,
        tuple(
            {"kind": k, "n_ranks": n, "rank": r, "extra_ms": ms, "probability": p}
            for k, n, r, ms, p in (
                ("ddp", 4, 2, 50.0, 0.9), ("fsdp", 16, 9, 20.0, 1.0), ("pipeline", 8, 5, 40.0, 1.0),
            )
        ),
    ),
    FieldCase(
        41,
        "step times alone",
        step_times_alone,
        tuple({"kind": k, "n_ranks": n} for k, n in (("ddp", 2), ("fsdp", 8), ("pipeline", 4))),
    ),
    FieldCase(
        46,
        "collectors that start by themselves",
        collector,
        tuple(
            {"kind": k, "n_ranks": n, "ms": ms, "share": p, "seed": s}
            for k, n, ms, p, s in (
                ("ddp", 64, 1300.0, 0.3, 1), ("fsdp", 16, 60.0, 0.2, 2), ("ddp", 8, 40.0, 0.5, 3),
                ("pipeline", 16, 120.0, 0.3, 4),
            )
        ),
    ),
    FieldCase(
        47,
        "delays of any rank and any length",
        uneven_delays,
        tuple(
            {"kind": k, "n_ranks": n, "seed": s}
            for k, n, s in (("ddp", 8, 1), ("fsdp", 16, 2), ("ddp", 32, 3))
        ),
    ),
)  # fmt: skip
