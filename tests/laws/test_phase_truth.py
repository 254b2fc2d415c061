"""Phases against what simulated ranks really did: own work, messages, gradients.

Time of own work inside a phase that says otherwise is *wrong*; inside UNKNOWN, or inside nothing,
it is *unsaid*. The table is printed (``pytest -rP``); what must be found of it stands in EXPECTED.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from comminsight.model.ops import Op
from comminsight.model.step import PhaseKind, StepSummary
from comminsight.pipeline.report import mean_phases
from comminsight.sim import (
    Batching,
    Jitter,
    SimRank,
    SimRun,
    ddp_accumulated_layout,
    ddp_pair_layout,
    megatron_layout,
    serving_batches_layout,
    simulate,
)
from comminsight.sim import megatron_core_layout as core_layout
from comminsight.sim.cluster import RUN_START_MONO_NS
from comminsight.sim.groups import groups_by_dimension
from comminsight.sim.noise import Noise
from comminsight.sim.program import ENTER, PHASES, WORK, Phase
from comminsight.sim.schedules import step_programs
from comminsight.sim.schedules_serving import batches_of
from tests.unit.semantics.schedules import BETWEEN, JOBS, Job, found_on, with_sp
from tests.unit.semantics.shipped import shipped_templates

SEED, STEPS = 11, 10
TEMPLATES = shipped_templates()
DOING = (PhaseKind.FORWARD, PhaseKind.BACKWARD, PhaseKind.OPTIMIZER)
MAX_WRONG = 0.002  # of the time of own work in the steps

MIB = 1 << 20
WIDE = {
    "ddp, accumulation, set-up": Job(replace(ddp_accumulated_layout(4), has_startup=True), "ddp"),
    "ddp, two models": Job(replace(ddp_pair_layout(4, (MIB, 3 * MIB)), has_startup=True), "ddp"),
    "ddp, two models, recorded later": Job(ddp_pair_layout(4, (MIB, 3 * MIB)), "ddp"),
    "tp pp dp, 64 ranks": Job(megatron_layout(4, 4, 4, microbatches=8), "tp-pp-dp"),
    "megatron, tp": Job(core_layout(2, 1, 2), "megatron"),
    "megatron, tp sp": Job(with_sp(core_layout(4, 1, 2, has_dist_opt=True)), "megatron"),
    "megatron, 4 stages": Job(core_layout(2, 4, 1, microbatches=8, has_dist_opt=True), "megatron"),
}
ALL = {**JOBS, **BETWEEN, **WIDE}
STEPPED = [name for name, job in ALL.items() if job.template]

# Least share of true (forward, backward) time that is told, per stage where stages differ.
EXPECTED: dict[str, list[tuple[float, float]]] = {
    "ddp": [(0, 0)],  # its first step is like the others: of how many models is not known
    "ddp, set-up": [(0, 1)],
    "ddp, accumulation": [(0, 0)],
    "ddp, accumulation, set-up": [(0, 1)],
    "ddp, two models": [(0, 0.75)],  # of the second, what precedes its first bucket is not told
    "ddp, two models, recorded later": [(0, 0)],
    "fsdp1": [(1, 1)],
    "fsdp1, every microbatch": [(1, 1)],
    "fsdp2": [(1, 1)],
    "fsdp2, accumulation": [(1, 1)],
    "fsdp2, accumulation, unclipped": [(1, 1)],
    "zero1": [(0, 1)],
    "zero2": [(0, 0)],
    "zero3": [(1, 1)],
    "moe": [(0, 0)],
    "megatron": [(0.99, 0.99), (0.99, 0.99)],
    "megatron, sp, dist opt": [(0.99, 0.99), (0.99, 0.99)],
    "megatron, interleaved": [(0.99, 0.99)] * 4,
    "megatron, tp": [(0.99, 0.99)],
    "megatron, tp sp": [(0.99, 0.99)],
    "megatron, cp": [(0, 0)],
    "tp pp dp": [(0.7, 0.8), (0, 0)],
    "tp pp dp, 64 ranks": [(0.7, 0.8), (0.99, 0.99), (0.99, 0.99), (0, 0)],
    "megatron, 4 stages": [(0.99, 0.99)] * 4,
    "pp": [(0.98, 0.98), (0.98, 0.98), (0.98, 0.98)],
    "pp, interleaved": [(0.95, 0.98), (0.98, 0.98), (0.98, 0.98), (0.45, 0.45)],
    "tp sp": [(0, 0)],
    "serving": [(0.99, 0)],
    "serving, tp ep": [(0.99, 0)],
}


@dataclass(frozen=True)
class Work:
    """Own work of one rank: intervals ``(n, 2)`` on its clock, and the phase of each."""

    spans: np.ndarray
    phases: np.ndarray


@cache
def run_of(name: str) -> SimRun:
    return simulate(ALL[name].layout, steps=STEPS, seed=SEED)


def true_work(run: SimRun, rank: SimRank) -> Work:
    """The program run once more over the times at which its ops began and ended."""
    number = rank.session.global_rank
    dimensions = groups_by_dimension(run.layout, run.groups)[number]
    programs = step_programs(run.layout, run.groups, dimensions, number, STEPS)
    drawn = Noise(SEED, Jitter()).work_ns(number, programs[0].segments, STEPS, ())
    spans, phases, nth, now = [], [], 0, 0
    for step, program in enumerate(programs):
        entered = {}
        for code, operand, slot in program.instructions:
            if code == WORK:
                spans.append((now, now + int(drawn[step, operand])))
                phases.append(PHASES.index(program.segments[operand].phase))
                now = spans[-1][1]
            elif code == ENTER:
                assert now == rank.log.start_ns[nth]
                entered[slot] = nth
                nth += 1
            else:
                now = max(now, int(rank.log.end_ns[entered[operand]]))
    return Work(local(rank, np.array(spans, np.int64)), np.array(phases))


def local(rank: SimRank, true_ns: np.ndarray) -> np.ndarray:
    return RUN_START_MONO_NS + rank.clock.local_ns(true_ns)


def spans_of(step: StepSummary, kind: PhaseKind) -> np.ndarray:
    found = [(phase.start_ns, phase.end_ns) for phase in step.phases if phase.kind is kind]
    return np.array(found, np.int64).reshape(-1, 2)


def overlap_ns(one: np.ndarray, other: np.ndarray) -> int:
    """Time in which an interval of each kind meets; neither kind may overlap itself."""
    lengths = np.minimum(one[:, None, 1], other[None, :, 1])
    lengths = lengths - np.maximum(one[:, None, 0], other[None, :, 0])
    return int(np.maximum(lengths, 0).sum())


def shares(work: Work, steps: list[StepSummary]) -> dict[tuple[str, str], float]:
    """Of the true time of each phase in the steps: the share that each kind of phase covers."""
    found: dict[tuple[str, str], float] = {}
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        own = work.spans[work.phases == PHASES.index(phase)]
        windows = np.array([(step.start_ns, step.end_ns) for step in steps])
        total = overlap_ns(own, windows)
        for kind in (*DOING, PhaseKind.UNKNOWN, PhaseKind.BUBBLE):
            covered = sum(overlap_ns(own, spans_of(step, kind)) for step in steps)
            found[phase.value, kind.value] = covered / total if total else 0.0
    return found


def stages(job: Job, run: SimRun) -> list[SimRank]:
    """The first rank of each pipeline stage that has steps."""
    first: dict[int, SimRank] = {}
    for rank in run.ranks:
        first.setdefault(job.layout.place(rank.session.global_rank).pp, rank)
    return [rank for stage, rank in first.items() if stage not in job.abstains]


@pytest.mark.parametrize("name", EXPECTED)
def test_phases_tell_what_the_rank_did(name: str) -> None:
    job, run = ALL[name], run_of(name)
    ranks = stages(job, run)
    assert len(ranks) == len(EXPECTED[name])
    for stage, (rank, least) in enumerate(zip(ranks, EXPECTED[name], strict=True)):
        steps = found_on(rank, TEMPLATES).steps
        assert len(steps) >= STEPS - 1
        found = shares(true_work(run, rank), steps)
        told = tuple(found[kind, kind] for kind in ("forward", "backward"))
        print(f"{name:32} stage {stage}", *(f"{a[:4]}>{b[:4]} {v:.3f}"
              for (a, b), v in found.items() if v))  # fmt: skip
        wrong = {pair: v for pair, v in found.items() if v and pair[1] not in {pair[0], "unknown"}}
        assert max(wrong.values(), default=0) <= MAX_WRONG, (stage, wrong)
        assert all(a >= b * 0.995 for a, b in zip(told, least, strict=True)), (stage, told)


@pytest.mark.parametrize("name", STEPPED)
def test_the_phases_of_a_step_add_up_to_it(name: str) -> None:
    """What the rank does, or is unknown, is at most the step; with what lies over it, at least."""
    for rank in stages(ALL[name], run_of(name)):
        for step in found_on(rank, TEMPLATES).steps:
            told = mean_phases([step])
            doing = sum(told.get(kind.value, 0) for kind in (*DOING, PhaseKind.UNKNOWN))
            assert doing <= step.span_ns <= sum(told.values())
            assert all(0 < time_ns <= step.span_ns for time_ns in told.values())
            bubbles = spans_of(step, PhaseKind.BUBBLE)
            assert (bubbles[:, 0] >= step.start_ns).all()
            assert (bubbles[:, 1] <= step.end_ns).all()


@pytest.mark.parametrize("name", STEPPED)
def test_what_a_rank_does_never_overlaps_and_lies_in_the_step(name: str) -> None:
    job, run = ALL[name], run_of(name)
    for rank in stages(job, run):
        steps = found_on(rank, TEMPLATES).steps
        assert len(steps) >= STEPS - 1 - max(job.layout.steps_short, default=0)
        for step in steps:
            doing = sorted(
                (phase.start_ns, phase.end_ns)
                for phase in step.phases
                if phase.kind in {*DOING, PhaseKind.UNKNOWN}
            )
            assert all(a[1] <= b[0] for a, b in pairwise(doing)), step.step
            assert all(step.start_ns <= p.start_ns < p.end_ns <= step.end_ns for p in step.phases)


NUMBERED = [
    "tp pp dp, 64 ranks", "megatron, 4 stages", "pp", "megatron", "megatron, tp", "fsdp1",
    "fsdp1, every microbatch", "fsdp2, accumulation", "fsdp2, accumulation, unclipped", "zero3",
]  # fmt: skip


@pytest.mark.parametrize("name", NUMBERED)
def test_passes_carry_the_microbatch_of_their_ops(name: str) -> None:
    """Ops in the middle of a pass belong to the microbatch it names."""
    job, run = ALL[name], run_of(name)
    n_checked = 0
    for rank in stages(job, run):
        start_ns = local(rank, rank.log.start_ns)
        for step in found_on(rank, TEMPLATES).steps:
            for phase in step.phases:
                if phase.microbatch < 0:
                    continue
                assert phase.n_microbatches == job.layout.microbatches
                inside = (start_ns > phase.start_ns) & (start_ns < phase.end_ns)
                assert set(rank.log.microbatches[inside].tolist()) <= {phase.microbatch}
                kinds = {PHASES[number].value for number in rank.log.phases[inside]}
                assert kinds <= {phase.kind.value}
                n_checked += int(inside.any())
    assert n_checked > 0 or name == "pp"  # a bare pipeline has no ops in its passes


def test_gradients_in_flight_are_told() -> None:
    names = ("ddp, set-up", "megatron", "megatron, sp, dist opt", "tp pp dp", "zero1", "moe")
    for name in names:
        run = run_of(name)
        for rank in stages(ALL[name], run):
            is_sync = rank.log.phases == PHASES.index(Phase.GRAD_SYNC)
            is_sync &= rank.log.ops["size_bytes"] > 1024
            spans = np.stack([rank.log.start_ns[is_sync], rank.log.end_ns[is_sync]], axis=1)
            in_steps = 0
            for step in found_on(rank, TEMPLATES).steps:
                (sync,) = spans_of(step, PhaseKind.GRAD_SYNC)
                own = local(rank, spans)
                own = own[(own[:, 0] >= step.start_ns) & (own[:, 1] <= step.end_ns)]
                assert [own[:, 0].min(), own[:, 1].max()] == sync.tolist(), name
                in_steps += 1
            assert in_steps >= STEPS - 1


@pytest.mark.parametrize("name", ["ddp, two models", "ddp, two models, recorded later"])
def test_gradients_of_two_models_are_not_in_flight_between_them(name: str) -> None:
    rank = run_of(name).ranks[0]
    is_sync = rank.log.phases == PHASES.index(Phase.GRAD_SYNC)
    is_sync &= rank.log.ops["size_bytes"] > 1024
    spans = np.stack([rank.log.start_ns[is_sync], rank.log.end_ns[is_sync]], axis=1)
    found = [spans_of(step, PhaseKind.GRAD_SYNC) for step in found_on(rank, TEMPLATES).steps[1:]]
    n_ops = 2 + 4
    true = local(rank, spans)[-n_ops * len(found) :].reshape(len(found), n_ops, 2)
    if name == "ddp, two models":
        true = np.stack([true[:, [0, 2], 0], true[:, [1, 5], 1]], axis=2)
    assert np.array_equal(np.array(found), true)


def test_bubbles_are_the_waits_in_receives() -> None:
    run = run_of("tp pp dp, 64 ranks")
    for rank in stages(ALL["tp pp dp, 64 ranks"], run):
        is_receive = rank.log.ops["op"] == Op.RECV
        waits = np.stack([rank.log.start_ns[is_receive], rank.log.end_ns[is_receive]], axis=1)
        steps = found_on(rank, TEMPLATES).steps
        found = np.concatenate([spans_of(step, PhaseKind.BUBBLE) for step in steps])
        true = local(rank, waits)
        true = true[(true[:, 0] >= steps[0].start_ns) & (true[:, 1] <= steps[-1].end_ns)]
        assert found.tolist() == true.tolist()


# Least share of true prefills and decodes that are told behind the first iterations.
SERVED = {
    Batching.SEPARATE: (0.9, 0.99),
    Batching.CHUNKED: (0, 0),
    Batching.SPECULATIVE: (0, 0),  # each sequence has several rows
    Batching.PREFILL: (0, 0),
    Batching.STATIC: (0, 0),  # one size of batch: it might be a budget that is filled
}


@pytest.mark.parametrize("batching", SERVED)
def test_iterations_are_told_by_the_sizes_of_their_ops(batching: Batching) -> None:
    n_steps, n_learnt = 240, 32
    run = simulate(serving_batches_layout(2, batching), steps=n_steps, seed=SEED)
    modes = [batch.mode for batch in batches_of(batching, n_steps)]
    for rank in run.ranks:
        steps = found_on(rank, TEMPLATES).steps
        assert len(steps) == n_steps
        found: Counter[tuple[str, str]] = Counter()
        for step, mode in zip(steps, modes, strict=True):
            forward, *over = step.phases
            assert forward.kind is PhaseKind.FORWARD
            told = "".join(phase.kind.value for phase in over)
            assert told in {"", mode}
            assert all((p.start_ns, p.end_ns) == (step.start_ns, step.end_ns) for p in over)
            found[mode, told] += step.step >= n_learnt
        print(f"{batching.value:12}", *(f"{a}>{b or '-'} {n}" for (a, b), n in found.items()))
        for kind, least in zip(("prefill", "decode"), SERVED[batching], strict=True):
            assert found[kind, kind] >= least * (found[kind, kind] + found[kind, ""])


def test_interleaved_among_two_stages_is_not_taken_for_1f1b() -> None:
    """Both neighbours are one there: no pass may be told by direction."""
    layout = replace(core_layout(2, 2, 1, microbatches=4), chunks=2)
    run = simulate(layout, steps=STEPS, seed=SEED)
    for rank in stages(Job(layout, "megatron"), run):
        found = shares(true_work(run, rank), found_on(rank, TEMPLATES).steps)
        wrong = [v for (a, b), v in found.items() if b not in {a, "unknown"}]
        assert max(wrong) <= MAX_WRONG
