"""A template learnt from a job, saved and loaded, against the template that ships for it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from comminsight.model.ops import Op
from comminsight.semantics.template_learning import learn_template
from comminsight.sim import (
    Jitter,
    LostRecords,
    SimLayout,
    SimRank,
    megatron_core_layout,
    serving_ep_layout,
    simulate,
    zero_layout,
)
from tests.unit.semantics.learning import cut_off, learn, reloaded, streams_of
from tests.unit.semantics.schedules import BETWEEN, JOBS, found_bounds, found_on, true_bounds
from tests.unit.semantics.shipped import shipped_templates

SHIPPED = shipped_templates()
ALL = JOBS | BETWEEN
N_STEPS = 12
REFUSED = {
    "pp": "no_common_collective",
    "pp, interleaved": "no_common_collective",
    "pp, two stages": "no_common_collective",
    "tp": "one_kind",
    "tp, two jobs": "one_kind",
    "fsdp1, every microbatch": "competing",
    "fsdp1, unclipped, every microbatch": "microbatches",
}
LEARNT = (
    "ddp", "ddp, set-up", "ddp, accumulation", "fsdp1", "fsdp1, unclipped", "fsdp2",
    "fsdp2, accumulation", "fsdp2, accumulation, unclipped", "zero1", "zero1, bf16", "zero2",
    "zero2, bf16", "zero3", "tp pp dp", "moe", "megatron", "megatron, sp, dist opt",
    "megatron, fp16", "megatron, interleaved", "megatron, dp and dist opt", "megatron, cp",
    "megatron, cp pp", "megatron, ep edp", "megatron, tp pp ep", "tp sp", "tp sp, two jobs",
    "serving", "serving, replicas", "serving, tp ep", "serving, ep", "ddp, evaluation",
    "fsdp1, evaluation", "fsdp2, evaluation", "zero1, evaluation", "zero2, evaluation",
    "zero3, evaluation", "megatron, evaluation", "ddp, checkpoint", "fsdp2, checkpoint",
    "zero1, checkpoint", "megatron, checkpoint", "serving, ends apart", "tp sp, ends apart",
)  # fmt: skip


@pytest.mark.parametrize("name", LEARNT)
def test_the_proposal_gives_the_steps_of_the_shipped_template_on_every_rank(name: str) -> None:
    run = simulate(ALL[name].layout, steps=N_STEPS, seed=2)
    learned = learn(run)
    template = reloaded(learned)
    # the loss that a DDP job reduces ends its steps; the shipped template leaves it between them
    shift = 1 if name.startswith("ddp") else 0
    for rank in run.ranks:
        own, shipped = found_on(rank, (*SHIPPED, template)), found_on(rank, SHIPPED)
        assert (own.template, shipped.template) == ("learned", ALL[name].template)
        assert [s.first.seq for s in own.steps] == [s.first.seq for s in shipped.steps]
        assert {a.last.seq - b.last.seq for a, b in zip(own.steps, shipped.steps, strict=True)} == {
            shift
        }
        assert all(step.anchor is not None for step in own.steps)
    told = learned.learning
    assert told.n_fitting_ranks == told.n_ranks == len(run.ranks)


def test_where_no_shipped_template_is_right_the_proposal_is() -> None:
    """ZeRO-3 in bf16: fsdp1 begins with the gather that ends the step."""
    run = simulate(JOBS["zero3, bf16"].layout, steps=N_STEPS, seed=2)
    template = reloaded(learn(run))
    for rank in run.ranks:
        assert found_bounds(found_on(rank, (template,)).steps) == true_bounds(rank)


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_proposed_where_the_ops_do_not_tell(name: str) -> None:
    learned = learn(simulate(JOBS[name].layout, steps=N_STEPS, seed=2))
    assert learned.template is None
    assert learned.learning.refusal is not None
    assert learned.learning.refusal.code == f"learning.{REFUSED[name]}"


@cache
def last_rank(name: str) -> SimRank:
    return simulate(ALL[name].layout, steps=N_STEPS, seed=3).ranks[-1]


@pytest.mark.parametrize("name", ["ddp", "fsdp1, unclipped", "zero2", "megatron", "moe", "serving"])
def test_it_does_not_win_on_other_jobs(name: str) -> None:
    template = reloaded(learn(simulate(JOBS[name].layout, steps=N_STEPS, seed=3)))
    family = name.split(",", maxsplit=1)[0]
    templates = (*SHIPPED, template)
    won = {other for other in ALL if found_on(last_rank(other), templates).template == "learned"}
    assert name in won
    # unclipped FSDP1 and FSDP2 emit the same, and have the same boundaries
    assert {other for other in won if other.split(",")[0] != family} <= ALIKE.get(name, set())


ALIKE = {"fsdp1, unclipped": {"fsdp2, accumulation, unclipped"}}


@pytest.mark.parametrize(
    "name",
    ["ddp", "fsdp1", "fsdp2, accumulation", "zero2", "zero3", "moe", "serving", "serving, tp ep"],
)
def test_one_percent_of_lost_records_does_not_mislead(name: str) -> None:
    layout = JOBS[name].layout
    lossy = simulate(layout, steps=60, seed=5, faults=[LostRecords(fraction=0.01)])
    template = reloaded(learn(lossy))
    for rank in simulate(layout, steps=N_STEPS, seed=6).ranks:
        whole = found_on(rank, (template,)).steps
        firsts = [first for first, _ in true_bounds(rank)]
        assert [first for first, _ in found_bounds(whole)] == firsts


@pytest.mark.parametrize("name", ["megatron", "megatron, interleaved", "tp sp"])
def test_where_losses_hide_the_step_no_part_of_it_is_taken_for_one(name: str) -> None:
    run = simulate(JOBS[name].layout, steps=60, seed=5, faults=[LostRecords(fraction=0.01)])
    assert learn(run).template is None


@pytest.mark.parametrize("name", ["fsdp2, accumulation", "zero1", "megatron, tp pp ep", "serving"])
def test_a_recording_from_the_middle_gives_the_steps_with_a_constant_shift(name: str) -> None:
    run = simulate(JOBS[name].layout, steps=14, seed=5)
    streams = streams_of(run)
    cut = [cut_off(s, len(s.rows) // 4 + 3 * s.global_rank, len(s.rows) * 9 // 10) for s in streams]
    learned = learn_template(cut, "learned")
    assert learned.learning.cut == "anchor"
    template = reloaded(learned)
    for rank, stream in zip(run.ranks, streams, strict=True):
        ops = zip(stream.rows["comm_index"].tolist(), stream.rows["op_seq"].tolist(), strict=True)
        place = {op: index for index, op in enumerate(ops)}
        true_firsts = [place[first] for first, _ in true_bounds(rank)]
        firsts = [place[first] for first, _ in found_bounds(found_on(rank, (template,)).steps)]
        assert 13 <= len(firsts) <= 14
        shifts = {true - found for true, found in zip(true_firsts[-12:], firsts[-12:], strict=True)}
        assert len(shifts) == 1


def test_the_support_and_the_counter_examples_are_told() -> None:
    learned = learn(simulate(BETWEEN["megatron, evaluation"].layout, steps=N_STEPS, seed=2))
    told = learned.learning
    assert (told.n_ranks, told.n_steps, told.n_periods, told.n_regular) == (8, 96, 88, 72)
    assert (told.n_groups, told.cut, told.n_counter_examples) == (1, "start", 16)
    (step,) = [period for period in told.periods if period.standing == "step"]
    assert (step.n_times, step.n_ranks) == (12, 8)
    first = told.counter_examples[0]
    assert (first.ranks, first.period, first.missing) == ((4, 5, 6, 7), 3, ())
    assert "4 × broadcast@TP" in first.extra


def test_replicas_that_do_not_speak_to_each_other_are_aligned_within_each_only() -> None:
    told = learn(simulate(JOBS["serving, replicas"].layout, steps=N_STEPS, seed=2)).learning
    assert told.n_groups == 2


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_too_few_steps_give_no_template(steps: int) -> None:
    for name in ("fsdp2", "zero2", "megatron", "ddp"):
        learned = learn(simulate(JOBS[name].layout, steps=steps, seed=2))
        assert learned.template is None
        assert learned.learning.refusal is not None


def test_an_anchor_must_be_the_same_op_of_its_communicator_on_all_ranks() -> None:
    streams = streams_of(simulate(JOBS["fsdp2"].layout, steps=N_STEPS, seed=2))
    rows = streams[1].rows.copy()
    rows["match_seq"] += 3
    told = learn_template([streams[0], replace(streams[1], rows=rows), *streams[2:]], "x").learning
    assert told.refusal is not None
    assert told.refusal.code == "learning.unmatched"
    assert {period.standing for period in told.periods if period.n_times == 12} == {"unmatched"}


def test_an_anchor_must_be_there_on_all_ranks() -> None:
    streams = streams_of(simulate(JOBS["fsdp2"].layout, steps=N_STEPS, seed=2))
    rows = streams[3].rows
    without = rows[rows["op"] != Op.ALL_REDUCE]
    learned = learn_template([*streams[:3], replace(streams[3], rows=without)], "x")
    assert "all_reduce" not in learned.learning.anchor


def test_no_ranks_give_no_template() -> None:
    told = learn_template([], "learned").learning
    assert told.refusal is not None
    assert told.refusal.code == "learning.no_ops"


@pytest.mark.parametrize(
    "layout",
    [
        megatron_core_layout(4, 4, 4, microbatches=8, has_dist_opt=True),
        serving_ep_layout(4, 16),
        zero_layout(3, 64, microbatches=8),
    ],
    ids=["megatron", "serving", "zero3"],
)
def test_64_ranks_with_jitter(layout: SimLayout) -> None:
    jitter = Jitter(sigma=0.15, hiccup_rate=0.02, rank_sigma=0.05, transfer_sigma=0.2)
    run = simulate(layout, steps=6, seed=9, jitter=jitter)
    template = reloaded(learn(run))
    for rank in run.ranks:
        firsts = [first for first, _ in found_bounds(found_on(rank, (template,)).steps)]
        assert firsts == [first for first, _ in true_bounds(rank)]
