"""The shipped templates on simulated jobs: who wins, how many steps, from where to where."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import msgspec
import pytest

from comminsight.errors import InputError
from comminsight.semantics.engine import SessionEngine
from comminsight.semantics.template import Template
from comminsight.semantics.template_file import parse_template_file
from comminsight.sim import (
    Clocks,
    Jitter,
    LostRecords,
    SimLayout,
    ddp_accumulated_layout,
    ddp_layout,
    fsdp1_layout,
    fsdp2_accumulated_layout,
    megatron_core_layout,
    pipeline_layout,
    serving_ep_layout,
    serving_layout,
    simulate,
    tensor_layout,
    zero_layout,
)
from tests.unit.semantics.schedules import (
    BETWEEN,
    JOBS,
    NONE,
    Job,
    found_bounds,
    found_on,
    true_bounds,
    with_sp,
)
from tests.unit.semantics.shipped import FILES, shipped_templates
from tests.unit.semantics.snapshots import carried

TEMPLATES = shipped_templates()
N_STEPS = 12
FAR_CLOCKS = Clocks(spread_ns=3_000_000_000, drift_ppm=20)
ALL = JOBS | BETWEEN
FIRST_UNTRUE = {"zero3, bf16", "ddp, set-up"}
# The loss that a DDP job reduces is no part of what the framework does.
LAST_UNTRUE = {name for name in ALL if name.startswith("ddp")} | {"zero3, bf16"}
LAST_UNTRUE |= {name for name in ALL if "gradients last" in name}  # behind the close


@pytest.mark.parametrize("name", ALL)
def test_the_right_template_wins_on_every_rank_and_finds_every_step(name: str) -> None:
    job = ALL[name]
    run = simulate(job.layout, steps=N_STEPS, seed=2, clocks=FAR_CLOCKS)
    assert run.is_finished
    for rank in run.ranks:
        number = rank.session.global_rank
        found = found_on(rank, TEMPLATES)
        assert found.template == job.expected(number)
        if found.template == NONE:
            assert all(score.reason for score in found.scores)
            continue
        expected, bounds = true_bounds(rank), found_bounds(found.steps)
        assert len(bounds) == len(expected) == job.layout.n_steps(number, N_STEPS)
        assert all(step.coverage_complete for step in found.steps)
        if name not in FIRST_UNTRUE:
            assert [first for first, _ in bounds] == [first for first, _ in expected]
        if name not in LAST_UNTRUE:
            assert [last for _, last in bounds] == [last for _, last in expected]


@pytest.mark.parametrize("name", JOBS)
def test_no_other_template_would_have_won_by_itself_but_those_stated(name: str) -> None:
    """The confusion matrix: which templates fit a job at all when each is tried alone."""
    job = JOBS[name]
    rank = simulate(job.layout, steps=N_STEPS, seed=4).ranks[0]
    fitting = {t.name for t in TEMPLATES if found_on(rank, (t,)).steps}
    assert fitting - {job.expected(0)} == ALSO_FITS.get(name, set())


# A template that also fits is outranked by the right one.
ALSO_FITS = {
    "fsdp1": {"fsdp2", "fsdp2-unclipped"},
    "fsdp1, every microbatch": {"fsdp2"},
    "zero1": {"ddp"},
    "zero1, bf16": {"ddp"},
    "zero3, bf16": {"fsdp2"},
    "zero3": {"fsdp1", "fsdp2"},
}
ALSO_FITS |= {name: {"tp-pp-dp"} for name in JOBS if name.startswith("megatron")}
del ALSO_FITS["megatron, dp and dist opt"]

LARGE: dict[str, Job] = {
    "ddp": Job(ddp_accumulated_layout(64), "ddp"),
    "fsdp1": Job(fsdp1_layout(64, layers=12), "fsdp1"),
    "fsdp2": Job(fsdp2_accumulated_layout(64, layers=3, microbatches=2), "fsdp2"),
    "zero3": Job(zero_layout(3, 64), "zero3"),
    "megatron": Job(
        with_sp(megatron_core_layout(4, 4, 4, microbatches=8, has_dist_opt=True)), "megatron"
    ),
    "interleaved": Job(megatron_core_layout(2, 8, 4, microbatches=8, chunks=2), "megatron"),
    "experts": Job(megatron_core_layout(2, 2, 16, ep=8, has_dist_opt=True), "megatron"),
    "ring": Job(megatron_core_layout(2, 2, 16, cp=4), "megatron"),
    "pipeline": Job(pipeline_layout(64, microbatches=96), "pipeline", abstains=(63,)),
    "tensor": Job(tensor_layout(8, dp=8, has_sequence_parallel=True), "tp-sp"),
    "serving": Job(serving_layout(8, 8), "serving-tp"),
    "serving, experts": Job(serving_ep_layout(4, 16), "serving-ep"),
}


@pytest.mark.parametrize("name", LARGE)
def test_64_ranks_with_jitter_and_clocks_seconds_apart_fuse_and_split_nothing(name: str) -> None:
    job = LARGE[name]
    jitter = Jitter(sigma=0.15, hiccup_rate=0.02, rank_sigma=0.05, transfer_sigma=0.2)
    run = simulate(job.layout, steps=5, seed=9, jitter=jitter, clocks=FAR_CLOCKS)
    for rank in run.ranks:
        found = found_on(rank, TEMPLATES)
        assert found.template == job.expected(rank.session.global_rank)
        if found.template != NONE:
            firsts = [first for first, _ in found_bounds(found.steps)]
            assert firsts == [first for first, _ in true_bounds(rank)]


@pytest.mark.parametrize(
    "layout",
    [
        zero_layout(1, 2, microbatches=1),
        zero_layout(2, 8, microbatches=3),
        fsdp2_accumulated_layout(2, microbatches=1, layers=2),
        fsdp1_layout(8, layers=1),
        megatron_core_layout(1, 4, 1, microbatches=2),
        megatron_core_layout(1, 2, 1, microbatches=1),
        megatron_core_layout(8, 1, 1, microbatches=1),
        with_sp(megatron_core_layout(2, 1, 4, has_dist_opt=True)),
        megatron_core_layout(1, 2, 2, microbatches=4, chunks=3, has_dist_opt=True),
        pipeline_layout(3, microbatches=3, chunks=3),
        replace(megatron_core_layout(2, 1, 2, microbatches=48), layers=8),
        with_sp(replace(megatron_core_layout(2, 1, 2, microbatches=48), layers=8)),
        replace(megatron_core_layout(2, 1, 4, ep=2, microbatches=32), layers=8),
        replace(megatron_core_layout(1, 2, 4, cp=2, microbatches=32), layers=8),
        replace(serving_layout(4), prefill_every=2, idle_every=3),
        replace(serving_ep_layout(2, 4), layers=1),
    ],
    ids=lambda layout: f"{layout.schedule} {layout.tp} {layout.pp} {layout.dp}",
)
@pytest.mark.parametrize("seed", [1, 2])
def test_other_sizes_give_the_same(layout: SimLayout, seed: int) -> None:
    run = simulate(layout, steps=6, seed=seed, clocks=FAR_CLOCKS)
    for rank in run.ranks:
        assert found_bounds(found_on(rank, TEMPLATES).steps) == true_bounds(rank)


def test_no_step_is_invented_while_a_serving_job_is_idle() -> None:
    layout = replace(serving_ep_layout(2, 2), idle_every=2)
    run = simulate(layout, steps=10, seed=1)
    for rank in run.ranks:
        steps = found_on(rank, TEMPLATES).steps
        assert len(steps) == 10
        assert max(step.span_ns for step in steps) < layout.idle_ns / 100
        assert sum(step.n_ops_between for step in steps) == 5 * 5  # the idle rounds


def example(name: str) -> tuple[Template, ...]:
    path = FILES[0].parent / "examples" / f"{name}.toml"
    return parse_template_file(tomllib.loads(path.read_text()), str(path)).templates


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("dft_global", "tp pp dp"),
        ("dft_global", "moe"),
        ("dft_global", "megatron"),
        ("dft_global", "megatron, interleaved"),
        ("dft_global", "megatron, evaluation"),
        ("dist_opt", "megatron, sp, dist opt"),
        ("dist_opt", "megatron, dp and dist opt"),
        ("dist_opt", "megatron, tp pp ep"),
        ("dist_opt", "megatron, cp pp"),
    ],
)
def test_an_example_with_a_free_anchor_finds_the_steps_of_its_jobs(name: str, job: str) -> None:
    layout = ALL[job].layout
    run = simulate(layout, steps=N_STEPS, seed=5, clocks=FAR_CLOCKS)
    for rank in run.ranks:
        found = found_on(rank, (*TEMPLATES, *example(name)))
        assert found.template == name.replace("_", "-")
        assert len(found.steps) == N_STEPS
        lasts = [last for _, last in found_bounds(found.steps)]
        assert lasts == [last for _, last in true_bounds(rank)]


def test_both_versions_stand_in_steps_snapshot_and_score() -> None:
    versioned = tuple(msgspec.structs.replace(t, version=t.version + 6) for t in TEMPLATES)
    rank = simulate(JOBS["megatron"].layout, steps=40, seed=1).ranks[0]
    engine = SessionEngine(versioned, identity=rank.session)
    engine.add_comms(rank.comms)
    steps = engine.push(rank.records)
    snapshot = carried(engine)
    assert {(s.template_version, s.template_file_version) for s in steps} == {(8, 1)}
    assert snapshot.machine is not None
    kept = snapshot.machine.template
    assert (kept.name, kept.version, kept.file_version) == ("megatron", 8, 1)
    assert [s.version for s in snapshot.selection if s.is_chosen] == [8]
    resumed = SessionEngine.resume(snapshot, versioned)
    assert resumed.finish() == engine.finish()
    with pytest.raises(InputError, match="'megatron' version 8"):
        SessionEngine.resume(snapshot, TEMPLATES)


@pytest.mark.parametrize("name", ["megatron, interleaved", "serving, tp ep", "zero1", "pp"])
@pytest.mark.parametrize("chunk", [1, 7, 300])
def test_a_learnt_close_does_not_depend_on_how_records_are_read(name: str, chunk: int) -> None:
    rank = simulate(JOBS[name].layout, steps=6, seed=3).ranks[0]
    engine = SessionEngine(TEMPLATES, identity=rank.session)
    engine.add_comms(rank.comms)
    pieces = range(0, len(rank.records), chunk)
    steps = [s for first in pieces for s in engine.push(rank.records[first : first + chunk])]
    assert steps + engine.finish() == found_on(rank, TEMPLATES).steps


@pytest.mark.parametrize(
    "name",
    [
        "fsdp2, evaluation", "megatron, evaluation", "megatron, evaluation, no dp",
        "moe, evaluation, a number per batch", "tp pp dp, evaluation, a number per batch",
        "tp pp dp, evaluation, gradients last", "tp pp, evaluation",
    ],
)  # fmt: skip
@pytest.mark.parametrize("chunk", [1, 17, 300])
def test_an_evaluation_is_left_out_in_any_chunks_and_across_crashes(name: str, chunk: int) -> None:
    rank = simulate(ALL[name].layout, steps=13, seed=3).ranks[0]
    engine = SessionEngine(TEMPLATES, identity=rank.session)
    engine.add_comms(rank.comms)
    steps = []
    for number, first in enumerate(range(0, len(rank.records), chunk)):
        steps += engine.push(rank.records[first : first + chunk])
        if chunk > 1 or number % 29 == 0:
            engine = SessionEngine.resume(carried(engine), TEMPLATES)
    steps += engine.finish()
    assert steps == found_on(rank, TEMPLATES).steps
    assert len(steps) == 13
    tally = engine.tally
    n_outside = tally["ops_before_first_step"] + tally["ops_between_steps"]
    assert sum(step.n_ops for step in steps) + n_outside == tally["order_emitted"]
    assert n_outside > sum(step.n_ops_between for step in steps), "evaluations are of no step"


@pytest.mark.parametrize("name", JOBS)
def test_one_percent_of_lost_records_changes_no_template_and_few_steps(name: str) -> None:
    job, n_steps = JOBS[name], 60
    run = simulate(job.layout, steps=n_steps, seed=2, faults=[LostRecords(fraction=0.01)])
    for rank in run.ranks:
        found = found_on(rank, TEMPLATES)
        assert found.template == job.expected(rank.session.global_rank)
        if found.template != NONE:
            assert abs(len(found.steps) - n_steps) <= 5


def test_long_steps_are_waited_for_while_a_close_is_learnt() -> None:
    layout = replace(megatron_core_layout(2, 1, 1, microbatches=64), layers=16)
    rank = simulate(layout, steps=6, seed=1).ranks[0]
    assert len(rank.records) > 6 * 4_000
    found = found_on(rank, TEMPLATES)
    assert found.template == "megatron"  # not tp-pp-dp, which knows two steps earlier
    assert found_bounds(found.steps) == true_bounds(rank)
    lasting = simulate(layout, steps=30, seed=1).ranks[0]  # more than a session holds
    assert found_bounds(found_on(lasting, TEMPLATES).steps) == true_bounds(lasting)


def test_pauses_alone_tell_the_steps_of_equal_buckets_but_not_layers_from_steps() -> None:
    ddp = simulate(ddp_layout(2, has_loss_reduce=False), steps=300, seed=1).ranks[0]
    found = found_on(ddp, TEMPLATES)
    assert found.template == "ddp"
    assert found_bounds(found.steps) == true_bounds(ddp)
    tensor = simulate(tensor_layout(2), steps=300, seed=1).ranks[0]
    alone = found_on(tensor, TEMPLATES)
    assert alone.template == NONE
    reasons = {score.template: score.reason for score in alone.scores}
    assert reasons["ddp"] == "steps_look_like_parts"
