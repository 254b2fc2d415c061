"""The documentation names only what exists, and everything that exists is documented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pytest

from comminsight.cli.verbs import VERBS
from comminsight.errors import ExitCode
from comminsight.model.verdict import Cause
from comminsight.pipeline.templates import parse, shipped_templates

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MILESTONES = r"(A|B|C|D|E|F|G|H\+I|J)"
STATES = re.compile(
    rf"done|part \({MILESTONES}\): .+|differs: .+|not yet \({MILESTONES}\).*|no: .+"
)
CODE = re.compile(r"`([^`]+)`")
README_LINES = 150


@dataclass(frozen=True)
class Row:
    """One row of docs/articles.md."""

    name: str
    ours: str
    tests: str
    state: str

    @property
    def is_built(self) -> bool:
        return self.state.startswith(("done", "part", "differs"))


def table_rows(text: str) -> Iterator[list[str]]:
    """Cells of every table line; a pipe inside a cell is written ``\\|``."""
    for line in text.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def article_rows() -> list[Row]:
    cells = table_rows((DOCS / "articles.md").read_text())
    return [Row(row[0], *row[2:]) for row in cells if re.fullmatch(r"[CHP]\d\.\d+", row[0])]


ROWS = article_rows()
BUILT = [row for row in ROWS if row.is_built]


def exists(name: str) -> bool:
    """Whether a verb, module, file or variable that a row names is there; other words count."""
    if name.startswith("comminsight "):
        return name.split()[1] in VERBS
    if re.fullmatch(r"comminsight(_inject)?(\.\w+)*", name):
        path = ROOT / "src" / name.replace(".", "/")
        return path.is_dir() or path.with_suffix(".py").is_file()
    if name.startswith("COMMINSIGHT_"):
        return name in documented_variables()
    if "/" in name or name.endswith((".txt", ".md")) or name == "LICENSE":
        return (ROOT / name).exists()
    return True


def place_of_test(name: str) -> Path:
    return ROOT / name if name.startswith("native/") else ROOT / "tests" / name


def documented_variables() -> set[str]:
    return set(re.findall(r"`(COMMINSIGHT_\w+)`", (DOCS / "environment.md").read_text()))


def source_variables() -> set[str]:
    """Names in Python sources, and quoted names in native ones (the others are macros)."""
    python = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    native = [path for path in (ROOT / "native").rglob("*") if path.suffix in {".cc", ".h"}]
    quoted = "\n".join(path.read_text() for path in native)
    return set(re.findall(r"\bCOMMINSIGHT_[A-Z0-9]\w*", python)) | set(
        re.findall(r'"(COMMINSIGHT_[A-Z0-9]\w*)"', quoted)
    )


def test_the_articles_are_covered_row_by_row() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert {name[0] for name in names} == set("CHP")
    assert len(names) > 300


def test_every_row_has_a_known_state_and_only_built_rows_name_tests() -> None:
    faults = {
        row.name: row.state
        for row in ROWS
        if not STATES.fullmatch(row.state) or (not row.is_built and row.tests != "–")
    }
    assert faults == {}


def test_what_built_rows_name_exists() -> None:
    faults = {row.name: [n for n in CODE.findall(row.ours) if not exists(n)] for row in BUILT}
    assert {name: missing for name, missing in faults.items() if missing} == {}


def test_built_rows_name_tests_that_exist() -> None:
    """A row that is built only in part may wait for its test."""
    faults = {
        row.name: row.tests
        for row in BUILT
        if not (CODE.findall(row.tests) or row.state.startswith("part"))
        or not all(place_of_test(name).exists() for name in CODE.findall(row.tests))
    }
    assert faults == {}


def test_the_verb_table_is_the_programs() -> None:
    rows = [row for row in table_rows((DOCS / "verbs.md").read_text()) if len(row) == 3]
    documented = {row[0].strip("`"): row[1] for row in rows if row[0].startswith("`")}
    assert documented == {name: verb.help for name, verb in VERBS.items()}


def test_every_cause_has_a_page_that_the_verdicts_link() -> None:
    pages = {page.stem: page.read_text() for page in (DOCS / "causes").glob("*.md")}
    linked = re.findall(r"\]\(causes/(\w+)\.md\)", (DOCS / "verdicts.md").read_text())
    assert set(pages) == {cause.value for cause in Cause}
    assert sorted(linked) == sorted(pages)
    parts = ["How it is told", "What looks like it", "When it is not told", "What to do next"]
    for cause, text in pages.items():
        assert text.startswith(f"# {cause}\n\n**"), cause
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == parts, cause
        assert re.search(r"```text\n.+?```", text, re.DOTALL), cause
        assert re.search(r"\n\*\*.+\?\*\*\n", text), cause
        links = re.findall(r"\]\((\w+)\.md\)", text)
        assert set(links) <= set(pages) - {cause}, cause


def test_every_exit_code_is_documented() -> None:
    rows = [row for row in table_rows((DOCS / "verbs.md").read_text()) if len(row) == 4]
    documented = {row[0]: row[1].strip("`") for row in rows if row[0].isdigit()}
    assert documented == {str(int(code)): code.name for code in ExitCode}


def test_every_variable_of_the_source_is_documented() -> None:
    assert source_variables() - documented_variables() == set()


def test_every_documented_variable_is_read_somewhere() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    unread = {name for name in documented_variables() if f'"{name}"' not in tests}
    assert unread - source_variables() == set()


def test_the_readmes_are_short_and_show_what_the_demo_printed() -> None:
    for name in ("README.md", "README.zh.md"):
        text = (ROOT / name).read_text()
        assert text.count("\n") <= README_LINES, name
        block = re.search(
            r"<!-- demo:begin -->\n```text\n(.*)```\n<!-- demo:end -->", text, re.DOTALL
        )
        assert block, name
        assert {"COMPUTE_STRAGGLER", "RANK_NOT_ENTERED"} <= set(re.findall(r"\w+", block[1])), name
        assert 20 <= block[1].count("\n") <= 45, name
        assert not re.search(r"BENCH_|prototype|原型", text), name


@pytest.mark.parametrize("name", ["README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_top_pages_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", (ROOT / name).read_text())
    local = [link for link in links if not link.startswith(("http:", "https:"))]
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_the_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    named = {word for page in pages for word in re.findall(r"`make ([a-z-]+)`", page.read_text())}
    assert named
    assert named - targets == set()


def test_the_verbs_that_pages_name_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if page.stem != "articles")]
    calls = re.compile(r"(?:^|`|/)comminsight ([a-z]+)", re.MULTILINE)
    named = {verb for page in pages for verb in calls.findall(page.read_text())}
    assert named
    assert named - set(VERBS) == set()


def test_a_decision_is_one_page_with_its_four_parts() -> None:
    headings = ["Context", "Decision", "Consequences", "What would change our mind"]
    for number, page in enumerate(sorted((DOCS / "adr").glob("*.md")), start=1):
        text = page.read_text()
        assert text.startswith(f"# ADR {number}: "), page.name
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == headings, page.name
        assert text.count("\n") <= 60, page.name


def test_the_templates_that_the_page_shows_are_some() -> None:
    page = (DOCS / "templates.md").read_text()
    own, *examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (template,) = parse("templates.md", own)
    assert template.name == "ours"
    folder = resources.files("comminsight.semantics") / "templates" / "examples"
    assert set(examples) == {file.read_text() for file in folder.iterdir()}
    assert {t.name for t in shipped_templates()} <= set(CODE.findall(page))
