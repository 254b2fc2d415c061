"""What ``comminsight templates`` tells of simulated runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.model.template_view import Outcome, TemplateView
from comminsight.run import open_run
from comminsight.sim import (
    SimLayout,
    megatron_core_layout,
    pipeline_layout,
    simulate,
    tensor_layout,
)
from tests.builders.run import write_run


def view_of(path: Path, layout: SimLayout, **options: int) -> TemplateView:
    run = open_run(write_run(path / "run", simulate(layout, steps=12, seed=1)))
    return run.template_view(**options)


def test_the_winner_its_versions_and_its_anchor(tmp_path: Path) -> None:
    view = view_of(tmp_path, megatron_core_layout(2, 2, 2, has_dist_opt=True))
    (choice,) = view.choices
    assert (choice.template, choice.version, choice.file_version) == ("megatron", 2, 1)
    assert (choice.ranks, choice.n_steps) == (tuple(range(8)), 12)
    assert (view.checked, view.anchor) == ("megatron", "all_reduce@GLOBAL int32 count=1")
    assert [check.outcome for check in view.checks] == [Outcome.HOLDS] * 3
    place = view.checks[1].evidence
    assert place.params == {"places": [5, 6]}  # the last stage has its loss behind it
    assert view.global_rank == 0
    assert [score.template for score in view.scores if score.is_chosen] == ["megatron"]


def test_scores_are_by_default_those_of_a_rank_without_steps(tmp_path: Path) -> None:
    view = view_of(tmp_path, pipeline_layout(4))
    assert [(choice.template, choice.ranks) for choice in view.choices] == [
        ("pipeline", (0, 1, 2)),
        ("", (3,)),
    ]
    assert view.global_rank == 3
    reasons = {score.template: score.reason for score in view.scores}
    assert reasons["pipeline"] == "one_microbatch_in_flight"
    # a receive of one pair is no global anchor, and it is said
    assert [check.outcome for check in view.checks] == [Outcome.HOLDS, Outcome.HOLDS, Outcome.FAILS]


def test_another_rank_can_be_asked_for(tmp_path: Path) -> None:
    view = view_of(tmp_path, pipeline_layout(4), global_rank=1)
    assert [score.template for score in view.scores if score.is_chosen] == ["pipeline"]
    with pytest.raises(InputError, match="no rank 9"):
        open_run(tmp_path / "run").template_view(global_rank=9)


def test_a_run_without_a_template_has_no_checks(tmp_path: Path) -> None:
    view = view_of(tmp_path, tensor_layout(2))
    assert [(choice.template, choice.ranks) for choice in view.choices] == [("", (0, 1))]
    assert (view.checked, view.checks) == ("", ())
    assert all(score.reason for score in view.scores)
    assert {score.n_ops for score in view.scores} == {12 * 8}
