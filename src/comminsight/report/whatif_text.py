"""Text of ``comminsight whatif``: the gains as a table, and what they do not know."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.model.what_if import PartKind, WhatIfReport, WhatIfRow
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Column, Page
from comminsight.report.text import coverage_lines

SMALL_RATIO = 0.005  # of the step: parts that gain less at most are counted, not listed
COLUMNS = (
    Column("part", 44),
    Column("gain"),
    Column("gain_low"),
    Column("gain_high"),
    Column("new_step"),
    Column("slowdown"),
)


def render_what_if(
    report: WhatIfReport, *, run: str = "", n_nodes: int = 0, lang: str = "en", width: int = 80
) -> str:
    """Largest gain first within each kind of part; ``slowdown`` is the step over the step without
    the part's excess."""
    page = Page(lang=lang, width=width, color=False)
    words = page.words
    page.sentence(words.text("heading.what_if", run=run), style="bold cyan")
    if not report.n_steps:
        page.bullets([words.text("what_if.none")])
    else:
        page.note(words.text("what_if.step", step_ns=report.step_ns, n_steps=report.n_steps))
        shown = [row for row in report.rows if _is_shown(row, report.step_ns)]
        page.table(COLUMNS, [_cells(row, report.step_ns, words) for row in shown])
        page.bullets(_remarks(report, shown, words))
    page.heading("missing")
    page.bullets(words.message(message) for message in report.missing)
    page.heading("coverage")
    page.bullets(coverage_lines(report.coverage, words, n_nodes))
    return page.text()


def _is_shown(row: WhatIfRow, step_ns: int) -> bool:
    return row.kind is PartKind.ALL or row.high_ns >= SMALL_RATIO * step_ns


def _remarks(report: WhatIfReport, shown: list[WhatIfRow], words: Catalogue) -> Iterator[str]:
    for row in shown:
        if row.cannot_tell is not None:
            why = words.text("what_if.cannot_tell", why=words.message(row.cannot_tell))
            yield f"{part_name(row, words)}: {why}"
    if n_small := len(report.rows) - len(shown):
        yield words.text("what_if.small", n=n_small, ratio=SMALL_RATIO)


def part_name(row: WhatIfRow, words: Catalogue) -> str:
    """The part in words."""
    code = row.kind.value
    if row.kind is PartKind.LINK:
        code = "group" if row.sender < 0 else "pair"
    return words.text(
        f"what_if.{code}", name=row.name, ranks=list(row.ranks), sender=row.sender,
        receiver=row.receiver,
    )  # fmt: skip


def _cells(row: WhatIfRow, step_ns: int, words: Catalogue) -> tuple[str, ...]:
    name = part_name(row, words)
    bounds = (numbers.duration(row.low_ns), numbers.duration(row.high_ns))
    if row.cannot_tell is not None:
        return (name, "?", *bounds, "?", "?")
    step_without_ns = max(step_ns - row.expected_ns, 1)
    return (
        name,
        numbers.duration(row.expected_ns),
        *bounds,
        numbers.duration(step_without_ns),
        f"{step_ns / step_without_ns:.3f}",
    )
