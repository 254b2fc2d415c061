"""Text of ``comminsight templates``."""

from __future__ import annotations

from comminsight.model.template_view import (
    AnchorCheck,
    AnchorRule,
    Outcome,
    TemplateChoice,
    TemplateView,
)
from comminsight.model.verdict import Message
from comminsight.model.views import VIEW_SCHEMA_VERSION, TemplateScore
from comminsight.report.catalogue import LANGUAGES, catalogue
from comminsight.report.templates_text import render_template_view

VIEW = TemplateView(
    schema_version=VIEW_SCHEMA_VERSION, run_id="r", global_rank=2, checked="ours", anchor="x",
    choices=(
        TemplateChoice(template="ours", version=3, file_version=1, ranks=(0, 1, 2), n_steps=40),
        TemplateChoice(
            template="", version=0, file_version=0, ranks=(3,), n_steps=0,
            reasons=("no_template_matches",),
        ),
    ),
    scores=(
        TemplateScore(
            template="ours", version=3, priority=41, is_chosen=True, n_open=9, n_anchor=4,
            n_close=4, n_steps=4, covered_ops_ratio=0.98, n_ops=120,
        ),
    ),
    checks=(
        AnchorCheck(
            rule=AnchorRule.SAME_MEANING, outcome=Outcome.FAILS, ranks=(2,),
            evidence=Message("anchor.other_meaning", {"ranks": [2], "own": "a", "common": "b"}),
        ),
        AnchorCheck(
            rule=AnchorRule.STABLE_PLACE, outcome=Outcome.HOLDS,
            evidence=Message("anchor.one_place", {"places": [0, 2]}),
        ),
    ),
)  # fmt: skip


def test_choices_scores_and_checks() -> None:
    assert (
        render_template_view(VIEW, run="RUN")
        == """\
Templates of RUN
  - ours version 3 (file version 1) on ranks 0-2: up to 40 steps
  - no template on rank 3 (no step template matches)

Rank 2
Templates tried
  template          version  priority  open  anchor  close  steps  covered
  ours      chosen        3        41     9       4      4      4      98%
  - counted over the first 120 ops of this rank, on which the choice fell
  - ours: it fits, and no template of a higher priority does

Does the anchor of ours hold on the data?
  - the same meaning on all ranks: FAILS. a on rank 2, b on the others
  - a stable place in each step: holds. ops of the step behind it, always: 0, 2
"""
    )


def test_chinese_is_chinese() -> None:
    text = render_template_view(VIEW, run="RUN", lang="zh")
    assert "在每个 Step 中位置稳定：成立" in text
    assert "不成立" in text


def test_every_rule_and_outcome_has_a_word() -> None:
    for lang in LANGUAGES:
        known = catalogue(lang).templates
        assert {f"rule.{rule.value}" for rule in AnchorRule} <= known.keys()
        assert {f"outcome.{outcome.value}" for outcome in Outcome} <= known.keys()
