"""What-if on simulated jobs, against the same job without the planted fault.

The truth is the mean step of the run with the fault over that of the same seed without it. Laws:
nothing taken away gives the steps as they were; gains are never negative and their bounds in order;
everything at once gains at least what one part does; a healthy job has nothing to gain; the
expected slowdown is within 5 % of the truth in 99 % of the runs and never beyond 10 %, and the
bounds hold the truth in 95 %. 130 planted runs by default, 650 with ``COMMINSIGHT_FULL=1``.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from comminsight.analysis.alignment import align_steps
from comminsight.analysis.measures import run_sources
from comminsight.analysis.whatif import Gain, Part, WhatIf
from comminsight.analysis.whatif_barriers import with_barriers
from comminsight.analysis.whatif_steps import LabelledRun, labelled_run
from comminsight.model.trace import RunTrace
from comminsight.pipeline.what_if import stages_of
from comminsight.sim import (
    Fault,
    Jitter,
    LateRank,
    SimLayout,
    SlowLink,
    ddp_layout,
    fsdp2_accumulated_layout,
    fsdp2_layout,
    megatron_core_layout,
    megatron_layout,
    moe_layout,
    run_trace,
    simulate,
)

STEPS = 20
SEEDS = range(20 if os.environ.get("COMMINSIGHT_FULL") == "1" else 4)
LAYOUTS = {
    "ddp": ddp_layout(8),
    "two replicas": ddp_layout(2),
    "fsdp2": fsdp2_layout(8),
    "accumulated": fsdp2_accumulated_layout(4),
    "four stages": megatron_layout(1, 4, 2),
    "rendezvous": dataclasses.replace(megatron_layout(1, 4, 2), is_send_buffered=False),
    "tp pp dp": megatron_layout(2, 2, 2),
    "megatron core": megatron_core_layout(2, 2, 2),
    "experts": moe_layout(8, 4),
}


@dataclasses.dataclass(frozen=True)
class Planted:
    """A faulty job, its healthy twin, and the part of it that is at fault."""

    layout: SimLayout
    faults: tuple[Fault, ...]
    part: Callable[[LabelledRun], Part]
    twin: SimLayout


def mask(n: int, *chosen: int) -> np.ndarray:
    found = np.zeros(n, bool)
    found[list(chosen)] = True
    return found


@cache
def step_ns(layout: SimLayout) -> int:
    return round(float(np.diff(simulate(layout, steps=8, seed=0).truth.end_ns.max(axis=1)).mean()))


def engine_of(trace: RunTrace) -> tuple[WhatIf, LabelledRun]:
    sources = run_sources(trace)
    labelled = labelled_run(sources, align_steps(trace)[1:])
    steps, n_barriers = with_barriers(labelled.steps)
    assert n_barriers == 0  # the simulator records all that it waits for
    return WhatIf(steps, stages_of(trace, sources.global_ranks)), labelled


def period_ns(layout: SimLayout, seed: int, *faults: Fault) -> float:
    ends = simulate(layout, steps=STEPS, seed=seed, faults=faults).truth.end_ns.max(axis=1)
    return float(np.diff(ends)[1:].mean())


def late_rank(layout: SimLayout, seed: int) -> Planted:
    n, rank = layout.world_size, (seed * 5 + 3) % layout.world_size
    fault = LateRank(rank, round((0.1, 0.3)[seed % 2] * step_ns(layout)))
    return Planted(layout, (fault,), lambda _: Part(ranks=mask(n, rank)), layout)


def late_rank_since(layout: SimLayout, seed: int) -> Planted:
    n, rank = layout.world_size, (seed * 3 + 1) % layout.world_size
    fault = LateRank(rank, round(0.3 * step_ns(layout)), from_step=(6, 12)[seed % 2])
    return Planted(layout, (fault,), lambda _: Part(ranks=mask(n, rank)), layout)


def slow_node(layout: SimLayout, seed: int) -> Planted:
    n = layout.world_size
    size = max(1, n // (2, 4)[seed % 2])
    own = range(seed % (n // size) * size, (seed % (n // size) + 1) * size)
    faults = tuple(LateRank(rank, round(0.2 * step_ns(layout))) for rank in own)
    part = Part(ranks=mask(n, *own), is_joint=True)
    return Planted(layout, faults, lambda _: part, layout)


def slow_stage(layout: SimLayout, seed: int) -> Planted:
    stage, weights = seed % layout.pp, [1.0] * layout.pp
    weights[stage] = 1.5
    heavy = dataclasses.replace(layout, stage_weights=tuple(weights))
    own = np.arange(layout.world_size) // (layout.tp * layout.dp) == stage
    return Planted(heavy, (), lambda _: Part(ranks=own, is_stage=True), layout)


def slow_pair(layout: SimLayout, seed: int) -> Planted:
    width = layout.tp * layout.dp
    pair = (seed % width, seed % width + width)

    def part(run: LabelledRun) -> Part:
        links = [(link.sender, link.receiver) == pair for link in run.links]
        receiver = mask(layout.world_size, pair[1])
        return Part(links=np.array([*links, False]), perhaps=receiver)

    fault = SlowLink("mesh_pp", (20.0, 60.0)[seed % 2], pair=pair)
    return Planted(layout, (fault,), part, layout)


def slow_group(layout: SimLayout, seed: int) -> Planted:
    groups = [
        g for g in simulate(layout, steps=1, seed=0).groups if g.desc in {"mesh_tp", "mesh_dp"}
    ]
    group = groups[seed * 3 % len(groups)]

    def part(run: LabelledRun) -> Part:
        return Part(links=np.array([*(link.comm_id == group.comm_id for link in run.links), False]))

    return Planted(layout, (SlowLink(group.name, 5.0),), part, layout)


def slow_op_class(layout: SimLayout, seed: int) -> Planted:
    names = {g.desc: g.role for g in simulate(layout, steps=1, seed=0).groups if len(g.members) > 1}
    desc = sorted(names)[seed % len(names)]

    def part(run: LabelledRun) -> Part:
        classes = [op_class.role == names[desc] for op_class in run.op_classes]
        return Part(op_classes=np.array([*classes, False]))

    return Planted(layout, (SlowLink(desc, 6.0, from_step=12),), part, layout)


STAGED = ("four stages", "rendezvous", "tp pp dp")
KINDS = {
    "late rank": (late_rank, tuple(LAYOUTS)),
    "late rank since": (late_rank_since, tuple(LAYOUTS)),
    "slow node": (slow_node, ("ddp", "fsdp2", "tp pp dp", "experts")),
    "slow stage": (slow_stage, STAGED),
    "slow pair": (slow_pair, STAGED),
    "slow group": (slow_group, ("tp pp dp",)),
    "slow op class": (slow_op_class, ("ddp", "fsdp2", "four stages", "tp pp dp")),
}


def slowdown(step: float, gain_ns: float) -> float:
    return step / (step - gain_ns)


def tried(planted: Planted, seed: int) -> tuple[float, float, Gain, Gain] | None:
    """True slowdown, step as the engine sees it, gain of the part, gain of everything; None for a
    node that holds all who run its program."""
    faulty = simulate(planted.layout, steps=STEPS, seed=seed, faults=planted.faults)
    engine, labelled = engine_of(run_trace(faulty))
    assert engine.n_steps_left_out == 0
    part = planted.part(labelled)
    if part.is_joint and part.ranks is not None and not engine.has_peers(part.ranks):
        return None
    twin = period_ns(planted.twin, seed)
    truth = period_ns(planted.layout, seed, *planted.faults) / twin
    return truth, engine.step_ns(), engine.gains([part])[0], engine.gain_of_all([part])


@pytest.mark.slow
def test_the_slowdown_is_that_of_the_job_without_the_fault(
    capsys: pytest.CaptureFixture[str],
) -> None:
    errors, inside, wide, without_peers = defaultdict(list), [], [], []
    for kind, (plant, names) in KINDS.items():
        for name in names:
            for seed in SEEDS:
                found = tried(plant(LAYOUTS[name], seed), seed)
                if found is None:
                    without_peers.append((name, seed))
                    continue
                truth, step, gain, whole = found
                assert 0 <= gain.low_ns <= gain.expected_ns <= gain.high_ns < step
                for one, every in zip(
                    dataclasses.astuple(gain), dataclasses.astuple(whole), strict=True
                ):
                    assert every >= one - 1
                expected = slowdown(step, gain.expected_ns)
                errors[kind].append(expected / truth - 1)
                low, high = slowdown(step, gain.low_ns), slowdown(step, gain.high_ns)
                is_inside = low <= truth + 0.005 and truth - 0.005 <= high
                inside.append(is_inside)
                if not is_inside:
                    wide.append((kind, name, seed, round(low, 3), round(truth, 3), round(high, 3)))
    largest = {kind: max(map(abs, own)) for kind, own in errors.items()}
    with capsys.disabled():
        told = {kind: f"{error:.1%}" for kind, error in largest.items()}
        sys.stdout.write(f"\n  what-if: {sum(inside)} of {len(inside)} within bounds; ")
        sys.stdout.write(f"largest error {told}; outside {wide}; no peers {without_peers}\n")
    every = np.abs(np.concatenate([np.array(own) for own in errors.values()]))
    assert np.count_nonzero(every < 0.05) >= 0.99 * len(every)
    assert every.max() < 0.10
    assert sum(inside) >= 0.95 * len(inside)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_job_has_nothing_to_gain(name: str, seed: int) -> None:
    engine, _ = engine_of(run_trace(simulate(LAYOUTS[name], steps=STEPS, seed=seed + 50)))
    gain = engine.gain_of_all([])
    step = engine.step_ns()
    assert slowdown(step, gain.low_ns) < 1.005
    assert slowdown(step, gain.expected_ns) < 1.03


@pytest.mark.parametrize("name", LAYOUTS)
def test_nothing_taken_away_gives_the_steps_as_they_were(name: str) -> None:
    layout = LAYOUTS[name]
    quiet = Part(ranks=np.zeros(layout.world_size, bool))
    trace = run_trace(simulate(layout, steps=8, seed=3, faults=[LateRank(1, step_ns(layout) // 4)]))
    engine, labelled = engine_of(trace)
    assert (engine.n_steps, engine.n_steps_left_out) == (7, 0)
    assert engine.gains([quiet]) == [Gain(0, 0, 0)]
    ends = [step.program.end_ns.max() for step in labelled.steps]
    assert engine.step_ns() == pytest.approx(np.diff(ends).mean())


def test_without_noise_the_gain_is_what_was_added() -> None:
    still = Jitter(sigma=0, hiccup_rate=0, rank_sigma=0, transfer_sigma=0)
    run = simulate(
        ddp_layout(4),
        steps=12,
        seed=1,
        jitter=still,
        faults=[LateRank(rank=3, extra_ns=30_000_000)],
    )
    engine, _ = engine_of(run_trace(run))
    gains = engine.gains([Part(ranks=mask(4, rank)) for rank in range(4)])
    assert gains[3].expected_ns == pytest.approx(30e6, rel=0.02)
    assert [gain.expected_ns for gain in gains[:3]] == [0, 0, 0]
