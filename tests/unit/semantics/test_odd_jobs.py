"""What looks like a step and is none: found right, or not at all and with the reason."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.model.ops import Op
from comminsight.semantics.template import Symbol, Template
from tests.unit.semantics.odd_jobs import MIB, StepWriter, ddp, fsdp2, odd_job, speculative
from tests.unit.semantics.shipped import shipped_templates

TEMPLATES = shipped_templates()
UNEQUAL = (3 * MIB, 2 * MIB, MIB)
PARTS, SEVERAL = "steps_look_like_parts", "steps_look_like_several"

RIGHT = {  # template that wins
    "layers of ddp normalised over all ranks": (ddp(norm_layers=14), "ddp"),
    "the same, unequal buckets": (ddp(sizes=UNEQUAL, norm_layers=14), "ddp"),
    "the same without a loss": (ddp(sizes=UNEQUAL, norm_layers=14, has_loss=False), "ddp"),
    "a matrix is reduced per epoch": (ddp(matrix_every=10), "ddp"),
    "the same, unequal buckets, ddp": (ddp(sizes=UNEQUAL, matrix_every=10), "ddp"),
    "fsdp2, loss per microbatch": (fsdp2(4, norm=16, is_loss_per_batch=True), "fsdp2"),
    "the same, one scatter": (
        fsdp2(4, norm=16, is_loss_per_batch=True, is_scatter_last=True), "fsdp2",
    ),
    "layers of fsdp2 normalised": (fsdp2(layers=10, norm=40, norm_layers=10), "fsdp2"),
    "the same, norm of one number": (fsdp2(layers=10, norm=1, norm_layers=10), "fsdp2"),
    "the same, a loss and no norm": (fsdp2(layers=10, has_loss=True, norm_layers=10), "fsdp2"),
    "the same, units stay gathered": (
        fsdp2(layers=10, norm=40, norm_layers=10, is_gathered_again=False), "fsdp2",
    ),
    "fsdp2, log every tenth step": (fsdp2(layers=8, log_every=10), "fsdp2-unclipped"),
    "fsdp2, microbatches and a loss per step": (fsdp2(4, 8, has_loss=True), "fsdp1"),
}  # fmt: skip

HEALTHY = {
    "ddp, evaluation": (ddp(eval_every=10), "ddp"),
    "ddp, checkpoint": (ddp(checkpoint_every=10), "ddp"),
    "ddp, log": (ddp(log_every=10), "ddp"),
    "ddp, no loss, log": (ddp(sizes=UNEQUAL, has_loss=False, has_first_bucket=False, log_every=10),
                          "ddp"),
    "fsdp2, evaluation": (fsdp2(norm=40, eval_every=10), "fsdp2"),
    "fsdp2, checkpoint": (fsdp2(norm=40, checkpoint_every=10), "fsdp2"),
    "fsdp1, evaluation": (fsdp2(norm=1, eval_every=10), "fsdp1"),
    "fsdp1, checkpoint": (fsdp2(4, norm=1, checkpoint_every=5), "fsdp1"),
    "fsdp2, loss, log": (fsdp2(has_loss=True, log_every=5), "fsdp1"),
}  # fmt: skip

SILENT = {  # template, its reason, and how many of its blocks are a step (0: not said)
    "ddp, loss per microbatch": (ddp(4, is_loss_per_batch=True), "ddp", PARTS, 4),
    "ddp, the same, unequal": (ddp(3, UNEQUAL, is_loss_per_batch=True), "ddp", PARTS, 3),
    "fsdp2, loss per microbatch, no norm": (fsdp2(4, is_loss_per_batch=True), "fsdp2", PARTS, 4),
    "fsdp1, the same with its norm": (fsdp2(4, norm=1, is_loss_per_batch=True), "fsdp1", PARTS, 4),
    "fsdp2, every microbatch": (fsdp2(4), "fsdp2-unclipped", PARTS, 4),
    "fsdp2, every one of 16": (fsdp2(16), "fsdp2-unclipped", PARTS, 16),
    "layers of fsdp2 normalised, no norm": (
        fsdp2(layers=10, norm_layers=10), "fsdp2", PARTS, 0,
    ),
    "speculative, 1": (speculative(1, 2, 8), "serving-tp", PARTS, 2),
    "speculative, 3": (speculative(3, 2, 8), "serving-tp", PARTS, 4),
    "speculative, 7": (speculative(7, 1, 16), "serving-tp", PARTS, 8),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT | HEALTHY)
@pytest.mark.parametrize("steps", [40, 90])
def test_each_step_is_found_from_its_first_op_and_to_its_last(name: str, steps: int) -> None:
    write, template = (RIGHT | HEALTHY)[name]
    for seed, sigma in ((1, 0.02), (2, 0.1)):
        job = odd_job(write, steps, seed, sigma)
        found = job.found(TEMPLATES)
        assert found.template == template
        assert job.is_right(found)


@pytest.mark.parametrize("name", SILENT)
@pytest.mark.parametrize("steps", [24, 60])
def test_parts_of_a_step_are_no_steps(name: str, steps: int) -> None:
    write, template, reason, n_parts = SILENT[name]
    job = odd_job(write, steps)
    found = job.found(TEMPLATES)
    assert (found.template, found.steps) == ("", [])
    scores = {score.template: (score.reason, score.n_parts) for score in found.scores}
    assert scores[template] == (reason, n_parts)


def test_what_only_every_nth_step_ends_with_closes_none() -> None:
    scores = odd_job(fsdp2(layers=8, log_every=4)).found(TEMPLATES).scores
    assert {s.reason for s in scores if s.template in {"fsdp1", "fsdp2"}} == {SEVERAL}


def mixed(draft: int, large: int) -> StepWriter:
    """Drafts of no constant number."""
    drafts = np.random.default_rng(5).integers(1, 6, 40).tolist()
    return lambda writer, step: speculative(drafts[step], draft, large)(writer, step)


def test_two_models_in_no_regular_turn_are_parts_of_no_known_number() -> None:
    found = odd_job(mixed(2, 8)).found(TEMPLATES)
    assert found.steps == []
    score = next(s for s in found.scores if s.template == "serving-tp")
    assert (score.reason, score.n_parts) == (PARTS, 1)


def test_a_template_of_ones_own_is_taken_at_its_word() -> None:
    gather = (Symbol(ops=(Op.ALL_GATHER,)),)
    reduce = (Symbol(ops=(Op.ALL_REDUCE,)),)
    own = Template(
        name="ours", version=1, priority=99, opens=((reduce,),), anchors=((gather,),),
        closes=((gather,),),
    )  # fmt: skip
    found = odd_job(speculative(3, 2, 8)).found((*TEMPLATES, own))
    assert (found.template, len(found.steps)) == ("ours", 160)
