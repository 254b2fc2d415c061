"""Periods that may be parts of a step, or several: nothing is learnt from them that is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from comminsight.semantics.template_learning import Learned
from comminsight.sim import SimRun
from tests.unit.semantics.learning import learn, reloaded
from tests.unit.semantics.learning_programs import (
    KIB,
    LAYOUTS,
    MS,
    Draw,
    Family,
    When,
    drawn,
    n_wrong,
    run_of,
)

PLAIN = Draw(
    family=Family.DDP, layout=LAYOUTS[Family.DDP][1], steps=40, microbatches=1,
    buckets=(640 * KIB, 1280 * KIB, 320 * KIB, 1920 * KIB), has_sync_each=True,
    has_loss_each=False, norm_numbers=0, loss=When.NEVER, log=When.NEVER, log_every=10, log_ns=0,
    eval_every=0, has_eval_data=False, forward_ns=16 * MS, optimizer_ns=4 * MS,
)  # fmt: skip
FAMILIES = (Family.DDP, Family.FSDP, Family.MESH, Family.OWN)


def of_family(family: Family, **changes: object) -> Draw:
    return replace(PLAIN, family=family, layout=LAYOUTS[family][0], **changes)  # type: ignore[arg-type]


def outcome(run: SimRun, learned: Learned) -> str:
    """The reason of the refusal, "right", or how many steps are wrong."""
    if learned.template is None:
        assert learned.learning.refusal is not None
        return learned.learning.refusal.code
    template = reloaded(learned)
    wrong = sum(n_wrong(rank, template) for rank in run.ranks)
    return f"{wrong} wrong" if wrong else "right"


def outcome_of(draw: Draw, seed: int = 1) -> str:
    run = run_of(draw, seed)
    return outcome(run, learn(run))


REFUSALS = {
    "learning.competing", "learning.doubt_inserted", "learning.doubt_several",
    "learning.doubt_partial", "learning.microbatches",
}  # fmt: skip


@pytest.mark.parametrize("microbatches", [2, 4, 7])
@pytest.mark.parametrize("loss", [When.NEVER, When.BEHIND])
@pytest.mark.parametrize("family", FAMILIES)
def test_microbatches_that_reduce_gradients_and_a_loss_are_no_steps(
    family: Family, loss: When, microbatches: int
) -> None:
    norm_numbers = 0 if loss else 1
    draw = of_family(
        family, microbatches=microbatches, steps=20, has_loss_each=True, loss=loss,
        norm_numbers=norm_numbers,
    )  # fmt: skip
    assert outcome_of(draw) in REFUSALS


@pytest.mark.parametrize("n_buckets", [1, 2, 3])
@pytest.mark.parametrize("log_ns", [0, 50 * MS])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_log_between_short_steps_is_not_the_end_of_one(
    family: Family, log_ns: int, n_buckets: int
) -> None:
    """As few ops per step as a layer has. Behind the optimizer the pauses tell that it is a log."""
    draw = of_family(family, log_ns=log_ns, buckets=PLAIN.buckets[:n_buckets], steps=60)
    assert outcome_of(replace(draw, log=When.BEFORE)) in REFUSALS | {"right"}
    assert outcome_of(replace(draw, log=When.BEHIND)) in REFUSALS | {"right"}


@pytest.mark.parametrize("n_buckets", [1, 4])
def test_equal_buckets_that_nothing_but_a_log_separates_are_not_one_step(n_buckets: int) -> None:
    draw = of_family(Family.DDP, buckets=(640 * KIB,) * n_buckets, log=When.BEHIND, steps=60)
    assert outcome_of(draw) in REFUSALS


@pytest.mark.parametrize("every", [2, 10])
@pytest.mark.parametrize("family", FAMILIES)
def test_where_the_optimizer_runs_in_every_period_a_log_comes_in_between(
    family: Family, every: int
) -> None:
    """The loss comes before the optimizer, the log behind: then there is less to wait for."""
    draw = of_family(
        family, loss=When.BEFORE, log=When.BEHIND, log_every=every, optimizer_ns=8 * MS, steps=41
    )
    assert outcome_of(draw) == ("right" if every == 10 else outcome_of(draw))
    assert outcome_of(replace(draw, log=When.NEVER)) == "right"


@pytest.mark.parametrize("family", [Family.DDP, Family.OWN])
def test_an_evaluation_behind_a_loss_that_ends_the_step_comes_in_between(family: Family) -> None:
    draw = of_family(family, loss=When.BEHIND, eval_every=10, steps=41)
    assert outcome_of(draw) == "right"


def test_parameters_gathered_once_make_one_step_of_the_microbatches() -> None:
    draw = of_family(Family.ZERO, microbatches=4, norm_numbers=1, buckets=(640 * KIB,) * 4)
    assert outcome_of(draw) == "right"


@pytest.mark.parametrize("seed", range(5))
def test_gradients_that_every_other_block_lacks_are_part_of_a_step(seed: int) -> None:
    draw = replace(drawn(np.random.default_rng(seed)), family=Family.FSDP, has_sync_each=False,
                   layout=LAYOUTS[Family.FSDP][0], microbatches=2, has_loss_each=True)  # fmt: skip
    assert outcome_of(draw) in REFUSALS | {"right"}
