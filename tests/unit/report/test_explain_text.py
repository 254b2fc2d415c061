"""The explanation of a verdict: complete for every cause, and never more than it knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from comminsight.errors import InputError
from comminsight.model.verdict import (
    Cause,
    ChainLevel,
    ChainLink,
    Confidence,
    Evidence,
    Message,
    Verdict,
)
from comminsight.report.catalogue import LANGUAGES, catalogue
from comminsight.report.explain_text import (
    CHECKS,
    command,
    find_verdict,
    open_checks,
    render_explanation,
)
from comminsight.report.verdict_text import HANG_CAUSES
from tests.unit.report.reports import COVERAGE, HANG, STRAGGLER, report

DIAGNOSIS = Path(__file__).parents[3] / "src" / "comminsight" / "diagnosis"


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_says_how_it_is_told_and_what_would_refute_it(cause: Cause, lang: str) -> None:
    words = catalogue(lang)
    assert {f"told.{cause.value}", f"refuted.{cause.value}"} <= set(words.templates)
    verdict = Verdict(
        rule="r", cause=cause, confidence=Confidence.LOW, coverage=COVERAGE,
        first_bad_op=HANG.first_bad_op, culprits=(3,),
    )  # fmt: skip
    text = render_explanation(report(verdict), 1, ["r"], lang=lang, width=400)
    for group in ("told", "refuted"):
        assert words.text(f"{group}.{cause.value}") in text
    assert not re.search("root cause|根因|根本原因", text)
    boundary = {"en": "The earliest op that did not progress", "zh": "最早没有推进的算子"}[lang]
    assert (boundary in text) == (cause in HANG_CAUSES)


def test_the_texts_are_those_of_a_cause_of_today() -> None:
    for lang in LANGUAGES:
        codes = [code for code in catalogue(lang).templates if re.match(r"(told|refuted)\.", code)]
        names = {code.partition(".")[2] for code in codes} - {"NOT_DESCRIBED"}
        assert names == {cause.value for cause in Cause}


def test_a_reference_is_opened_by_one_command_for_each() -> None:
    chain = (
        ChainLink(ChainLevel.JOB, "4 ranks", "run"),
        ChainLink(ChainLevel.RANK, "3", "step_cost_ns=52000000"),
        ChainLink(ChainLevel.NODE, "node-b", "run"),
        ChainLink(ChainLevel.PORT, "unknown"),
    )
    text = render_explanation(report(STRAGGLER, replace(HANG, chain=chain)), 2, ["a b", "c"])
    assert text.count("comminsight show 'a b' c --ref run\n") == 1
    assert text.count("comminsight show 'a b' c --ref verdict:2\n") == 1
    assert "comminsight show 'a b' c --ref evidence:2.1\n" in text
    bare = render_explanation(report(replace(HANG, chain=(), evidence=())), 1, ["a"])
    assert "comminsight show" not in bare
    assert "Open what" not in bare
    assert command(["x;y"], "run") == "comminsight show 'x;y' --ref run"


@pytest.mark.parametrize(
    ("kinds", "still_open"),
    [
        ((), ["log", "hardware", "stacks"]),
        (("stack",), ["log", "hardware"]),
        (("log", "counter"), ["stacks"]),
        (("log", "host", "stack"), []),
    ],
)
def test_checks_are_open_until_their_evidence_is_there(
    kinds: tuple[str, ...], still_open: list[str]
) -> None:
    evidence = tuple(Evidence(kind=kind, message=Message("x")) for kind in kinds)
    assert open_checks(replace(STRAGGLER, evidence=evidence)) == still_open
    assert open_checks(replace(STRAGGLER, evidence=evidence, culprits=(), victims=())) == []


def test_the_kinds_that_close_a_check_are_those_of_the_rules() -> None:
    text = "\n".join(path.read_text() for path in DIAGNOSIS.rglob("*.py"))
    told = set(re.findall(r'kind="([a-z_]+)"', text))
    assert frozenset().union(*CHECKS.values()) <= told


def test_a_verdict_is_found_by_number_or_cause() -> None:
    made = report(STRAGGLER, HANG)
    found = [find_verdict(made, wanted) for wanted in ("", "2", "rank_not_entered")]
    assert found == [1, 2, 2]
    for wanted in ("0", "3", "RANK_DEAD", "٢"):
        with pytest.raises(InputError, match="no verdict"):
            find_verdict(made, wanted)
    with pytest.raises(InputError):
        find_verdict(report(), "")
