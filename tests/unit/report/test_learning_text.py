"""The answer of template learning as text."""

from __future__ import annotations

import pytest

from comminsight.model.learning import (
    CounterExample,
    CutEvidence,
    FoundPeriod,
    PeriodStanding,
    TemplateLearning,
)
from comminsight.model.verdict import Message
from comminsight.report.catalogue import LANGUAGES, catalogue
from comminsight.report.learning_text import render_learning

STEP = FoundPeriod(
    label="all_reduce@GLOBAL <=64B float32", standing=PeriodStanding.STEP, n_times=12, n_ops=15,
    duration_ns=31_000_000, regular_ratio=0.9, n_ranks=8,
)  # fmt: skip
PROPOSED = TemplateLearning(
    name="ours", n_ranks=8, opens="recv@PP", anchor="all_reduce@GLOBAL", close="until_open",
    cut=CutEvidence.END, n_fitting_ranks=8, n_steps=96, n_periods=88, n_regular=80, n_groups=1,
    periods=(STEP,), n_counter_examples=8,
    counter_examples=(
        CounterExample(ranks=(0, 1, 2, 3), period=3, seq=70, extra=("2 × barrier@GLOBAL",)),
    ),
)  # fmt: skip


def test_a_proposal_comes_with_its_support() -> None:
    assert render_learning(PROPOSED, run="r1", width=100) == (
        "Template learnt from r1\n"
        "  - 80 of 88 periods (from one occurrence of what recurs to the next) are alike, on 8 "
        "ranks\n"
        "  - 96 steps; every one lies where the periods say on 8 of 8 ranks\n"
        "  - the anchor is the same op of one communicator on all ranks: their steps can be "
        "aligned\n"
        "  - where a step ends is told by how the job ended\n"
        "\n"
        "Proposed: ours\n"
        "  open    recv@PP\n"
        "  anchor  all_reduce@GLOBAL\n"
        "  close   learnt on each rank: what follows the anchor in most steps, up to the next "
        "open\n"
        "\n"
        "What recurs\n"
        "  marked by                              times  ops  time ms  alike  ranks\n"
        "  all_reduce@GLOBAL <=64B float32  step     12   15     31.0    90%      8\n"
        "\n"
        "Periods that are not like the others (8; the first of them)\n"
        "  - ranks 0-3, period 3 (from record 70): too much: 2 × barrier@GLOBAL; missing: none\n"
    )


def test_a_refusal_says_why_and_proposes_nothing() -> None:
    why = Message("learning.too_few", {"n": 2, "n_least": 4})
    text = render_learning(TemplateLearning(name="ours", n_ranks=4, refusal=why), run="r1")
    assert text == (
        "Template learnt from r1\n"
        "  - no template is proposed: what recurs is seen 2 times at most; 4 are needed\n"
    )


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_word_of_learning_is_known(lang: str) -> None:
    known = catalogue(lang).templates
    codes = [f"period.{standing.value}" for standing in PeriodStanding]
    codes += [f"learning.cut_{evidence.value}" for evidence in CutEvidence]
    assert [code for code in codes if code not in known] == []
    assert "ours" in render_learning(PROPOSED, lang=lang)
