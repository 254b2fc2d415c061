from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comminsight.diagnosis.codes import CODES, MEASURES
from comminsight.errors import UsageError
from comminsight.model.ops import CommRole, OpState
from comminsight.model.tally import TALLY_NAMES
from comminsight.model.verdict import Cause, ChainLevel, Confidence, Message
from comminsight.report.catalogue import FORMS, LANGUAGES, Field, catalogue, language_of, parse


def test_both_languages_have_the_same_codes_and_parameters() -> None:
    en, zh = (catalogue(lang) for lang in LANGUAGES)
    assert en.templates.keys() == zh.templates.keys()
    differing = [code for code in en.templates if en.parameters(code) != zh.parameters(code)]
    assert differing == []


def test_an_op_has_one_name_in_chinese() -> None:
    """算子, as the glossary says; 操作 is what a person or a proxy thread does."""
    zh = catalogue("zh")
    others = ("proxy 操作", "操作者")
    odd = {
        code
        for code in zh.templates
        if "操作" in (text := zh.text(code)) and not any(word in text for word in others)
    }
    assert odd == {"column.action", "error.no_action"}


def test_chinese_is_not_left_in_english() -> None:
    """Sentences (three English words or more) must have been translated."""
    en, zh = catalogue("en"), catalogue("zh")
    same = [
        code
        for code, template in en.templates.items()
        if template == zh.templates[code] and len(en.text(code).split()) > 2
    ]
    assert same == []


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(
    ("group", "values"),
    [
        ("headline", [cause.value for cause in Cause]),
        ("meaning", [cause.value for cause in Cause]),
        ("confidence", [confidence.value for confidence in Confidence]),
        ("role", [role.value for role in CommRole]),
        ("tally", list(TALLY_NAMES)),
        ("state", [state.name.lower() for state in OpState]),
        ("field", [level.value for level in ChainLevel]),
        ("end", ["running", "exited", "killed", "unknown"]),
    ],
)
def test_every_word_of_the_model_is_known(lang: str, group: str, values: list[str]) -> None:
    known = catalogue(lang).templates
    assert [value for value in values if f"{group}.{value}" not in known] == []


@pytest.mark.parametrize("lang", LANGUAGES)
def test_codes_of_the_rules_have_a_sentence_with_exactly_their_parameters(lang: str) -> None:
    words = catalogue(lang)
    written = {
        code: {field.name for field in words.parameters(code)}
        for code in words.templates
        if code.split(".")[0] in {"evidence", "missing", "action"}
    }
    assert written == {code: set(params) for code, params in CODES.items()}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_measures_of_the_rules_have_a_label(lang: str) -> None:
    known = catalogue(lang).templates
    assert [key for key in MEASURES if f"field.{key}" not in known] == []


def test_what_nobody_knows_is_said() -> None:
    words = catalogue("en")
    assert words.text("evidence.died", rank=3, exit_status="").endswith("(exit status: unknown)")
    shape = {"ranks": [1], "op": "broadcast", "size_bytes": 8, "dtype": "", "root": -1}
    assert words.text("evidence.signature", **shape) == (
        "rank 1: broadcast, 8 B, type unknown, root none"
    )
    assert words.text("missing.stack", rank=3, reason="").endswith(": none was asked for")
    assert words.text("missing.stack", rank=3, reason="EPERM").endswith(": EPERM")


def test_parameters_are_filled_in_by_form() -> None:
    words = catalogue("en")
    text = words.text("clause.cost_ratio", cost_ns=52_000_000, ratio=0.31)
    assert text == "and cost each step 52.0 ms (31%)"
    assert words.text("who.many", ranks=[2, 0, 1]) == "ranks 0-2"


def test_unknown_codes_and_missing_parameters_are_shown() -> None:
    words = catalogue("en")
    assert words.message(Message("new.rule", {"rank": 3, "x": [1]})) == "new.rule (rank=3, x=[1])"
    assert words.message(Message("new.rule")) == "new.rule"
    assert words.text("clause.since") == "since step ?"


@pytest.mark.parametrize(
    "text", ["{0}", "{}", "{a.b}", "{a[0]}", "{a!r}", "{a:>10}", "{A}", "{a:{b}}", "{__class__}"]
)
def test_only_named_fields_with_declared_forms_are_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        parse(text)


def test_braces_can_be_written() -> None:
    assert parse("{{{n:count}}}") == ("{", Field("n", "count"), "}")


def test_unknown_language_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="fr"):
        catalogue("fr")
    assert [language_of(tag) for tag in ("zh_CN.UTF-8", "ZH", "C", "de_DE", "")] == [
        "zh", "zh", "en", "en", "en",
    ]  # fmt: skip


ANYTHING = st.one_of(
    st.integers(), st.floats(), st.text(), st.lists(st.integers()), st.lists(st.text()), st.none()
)


@given(st.sampled_from(sorted(FORMS)), ANYTHING)
def test_no_value_breaks_a_form(form: str, value: object) -> None:
    assert isinstance(FORMS[form](catalogue("zh"), value), str)


@given(st.sampled_from(sorted(catalogue("en").templates)), st.dictionaries(st.text(), ANYTHING))
def test_no_parameters_break_a_sentence(code: str, params: dict[str, object]) -> None:
    assert isinstance(catalogue("en").text(code, **params), str)
