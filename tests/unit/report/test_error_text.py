"""Errors in the language of their reader: the sentences of a code say what the error says."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import comminsight
from comminsight.cli import language, main
from comminsight.cli.template import main as template_main
from comminsight.cli.template import write_new
from comminsight.errors import CommInsightError, InputError, UsageError
from comminsight.launch.environment import checked_map, checked_run_id, checked_signal, within
from comminsight.launch.job import RunRequest, run_job
from comminsight.pipeline.layout import run_paths
from comminsight.pipeline.op_view import find_communicator, parse_op
from comminsight.pipeline.ras_store import read_ras
from comminsight.pipeline.templates import load_templates, parse
from comminsight.report.catalogue import LANGUAGES, catalogue
from comminsight.report.error_text import error_in, next_in
from tests.unit.analysis.tables import communicators

ERRORS = {"InputError", "UsageError", "UnreachableError", "CommInsightError"}


def coded() -> Iterator[tuple[str, set[str]]]:
    """(code, names of its parameters) of every error in the source that has one."""
    for path in Path(comminsight.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
                given = {word.arg or "": word.value for word in node.keywords}
                codes = given.pop("code", None)
                names = given.keys() - {"path", "next_step", "offset_bytes"}
                for one in ast.walk(codes) if codes is not None else ():
                    if isinstance(one, ast.Constant) and isinstance(one.value, str):
                        yield one.value, set(names)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_code_has_sentences_that_its_parameters_fill(lang: str) -> None:
    words, found = catalogue(lang), list(coded())
    assert len(found) > 30
    for code, names in found:
        said = {f.name for f in words.parameters(f"error.{code}")}
        if f"next.{code}" in words.templates:
            said |= {f.name for f in words.parameters(f"next.{code}")}
        assert said <= names, code


def failing(folder: Path) -> Iterator[Callable[[], object]]:
    (folder / "file").write_text("")
    (folder / "bad").mkdir()
    (folder / "bad" / "a.toml").write_text("[")
    yield lambda: run_paths(folder / "nowhere")
    yield lambda: run_paths(folder / "file")
    yield lambda: run_paths(folder)
    yield lambda: parse_op("x")
    yield lambda: find_communicator(communicators("0-3"), "nobody")
    yield lambda: checked_run_id("a/b")
    yield lambda: checked_map("tp")
    yield lambda: checked_signal("KILL")
    yield lambda: template_main(["teach"])
    yield lambda: template_main(["learn", "r", "--name", "ddp"])
    yield lambda: write_new(folder / "file", "")
    yield lambda: within(3, "X=3", (0, 1))
    yield lambda: load_templates([folder])
    yield lambda: load_templates([folder / "bad"])
    yield lambda: parse("[", "t.toml")
    yield lambda: read_ras(folder / "nowhere")
    yield lambda: run_job(RunRequest(command=("/no/such",), out=folder / "run", run_id="one"))


def test_english_says_what_the_error_itself_says(tmp_path: Path) -> None:
    seen = set()
    for fail in failing(tmp_path):
        with pytest.raises(CommInsightError) as caught:
            fail()
        error = caught.value
        assert error.code
        seen.add(error.code)
        assert error_in(error, "en") == str(error)
        assert next_in(error, "en").removeprefix("next: ") == error.next_step
        assert error_in(error, "zh") != str(error)
    assert len(seen) >= 10


def test_an_error_without_a_code_stays_english() -> None:
    error = InputError("is odd", path="/f", next_step="look")
    assert (error_in(error, "zh"), next_in(error, "zh")) == ("/f: is odd", "下一步：look")
    assert next_in(UsageError("no"), "zh") == ""


def test_a_verb_fails_in_the_language_that_was_asked_for(capsys: pytest.CaptureFixture) -> None:
    assert main(["report", "/no/such", "--lang", "zh"]) == 3
    assert capsys.readouterr().err == (
        "comminsight: /no/such: 没有这个目录\n  下一步：给出 `comminsight run` 打印的目录\n"
    )


@pytest.mark.parametrize(
    ("words", "lang"),
    [
        (["report", "r"], "en"),
        (["report", "r", "--lang", "zh"], "zh"),
        (["report", "--lang=zh", "r"], "zh"),
        (["report", "--lang=zh", "--lang", "en"], "en"),
        (["report", "--lang"], "en"),
        (["report", "--lang", "fr"], "en"),
        (["run", "--", "x", "--lang", "zh"], "en"),
    ],
)
def test_the_language_of_a_command_line(words: list[str], lang: str) -> None:
    assert language(words) == lang
