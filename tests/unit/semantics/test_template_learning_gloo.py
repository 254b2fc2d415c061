"""Captured gloo jobs: the steps of what is learnt from them against their own marks."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.semantics.engine import SessionEngine
from comminsight.semantics.template_learning import Learned, learn_template
from tests.unit.semantics.gloo_jobs import GlooRank, load_rank
from tests.unit.semantics.learning import rank_streams, reloaded


def learnt_from(ranks: list[GlooRank]) -> Learned:
    streams = rank_streams([(rank.identity, rank.comms, rank.batch) for rank in ranks])
    return learn_template(streams, "learned")


@pytest.mark.parametrize(
    ("job", "n_ranks"), [("ddp", 2), ("fsdp2", 2), ("hsdp", 4), ("tpsp", 2), ("zero1", 2)]
)
def test_there_is_one_step_per_mark_and_it_ends_before_the_next(job: str, n_ranks: int) -> None:
    ranks = [load_rank(job, number) for number in range(n_ranks)]
    template = reloaded(learnt_from(ranks))
    for rank in ranks:
        engine = SessionEngine([template], identity=rank.identity)
        engine.add_comms(rank.comms)
        steps = engine.push(rank.batch) + engine.finish()
        assert len(steps) == len(rank.marks_ns)
        bounds = [*rank.marks_ns[1:], np.iinfo(np.int64).max]
        lasts = [step.last.start_ns for step in steps]
        places = zip(rank.marks_ns, lasts, bounds, strict=True)
        assert all(low <= last < high for low, last, high in places)


@pytest.mark.parametrize(
    ("job", "n_ranks", "reason"),
    [
        ("ddp_accum", 2, "too_few"),  # two steps
        ("tp", 2, "ends_early"),  # the parameters are handed out in rounds, then all ops are alike
        ("pp", 4, "no_common_collective"),
    ],
)
def test_what_does_not_tell_its_steps_gives_no_template(
    job: str, n_ranks: int, reason: str
) -> None:
    told = learnt_from([load_rank(job, number) for number in range(n_ranks)]).learning
    assert told.refusal is not None
    assert told.refusal.code == f"learning.{reason}"
