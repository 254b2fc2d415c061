"""Text of ``comminsight show --pairs``: who made a rank wait, and whom it made wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.model.event import UNBOUNDED_NS
from comminsight.model.pairs_view import PairRow, RankPairs
from comminsight.report import numbers
from comminsight.report.page import Column, Page

MAX_PARTS = 3
COLUMNS = (
    Column("rank"),
    Column("node", 16),
    Column("wait_ms"),
    Column("n_steps"),
    Column("comm", 20),
    Column("op", 14),
    Column("in_op_ms"),
)


def render_pairs(view: RankPairs, *, lang: str = "en", width: int = 80, color: bool = False) -> str:
    """Both directions, each partner with the communicators and ops in which most was waited."""
    page = Page(lang=lang, width=width, color=color)
    words = page.words
    code = "heading.pairs" if view.step < 0 else "heading.pairs_of_step"
    title = words.text(code, rank=view.global_rank, step=view.step, n=view.n_steps)
    page.sentence(title, style="bold cyan")
    step_view = words.word("step_view", view.step_view)
    page.fields([("run", view.run_id), ("node", view.host), ("step_view", step_view)])
    _write_side(page, "pairs_culprits", view.culprits, view.n_culprits, view)
    _write_side(page, "pairs_victims", view.victims, view.n_victims, view)
    page.sentence("")
    page.note(words.text("note.pairs"))
    page.bullets(_limits(page, view))
    return page.text()


def _write_side(
    page: Page, code: str, rows: Sequence[PairRow], n_all: int, view: RankPairs
) -> None:
    page.heading(code, rank=view.global_rank)
    if not rows:
        is_told = view.n_steps > 0 and not view.missing
        page.bullets([page.words.text("note.no_pairs" if is_told else "note.pairs_unknown")])
        return
    page.table(COLUMNS, [cells for row in rows for cells in _cells(row)])
    if n_all > len(rows):
        page.note(page.words.text("note.more_pairs", n=n_all - len(rows)))


def _cells(row: PairRow) -> Iterator[tuple[str, ...]]:
    """A line for each of the largest parts; the partner stands on the first."""
    own = (
        str(row.global_rank), row.host, numbers.milliseconds(row.wait_ns),
        numbers.count(row.n_steps),
    )  # fmt: skip
    for nth, part in enumerate(row.parts[:MAX_PARTS]):
        head = ("", "", "", "") if nth else own
        yield (*head, part.comm_label, part.op, numbers.milliseconds(part.wait_ns))


def _limits(page: Page, view: RankPairs) -> Iterator[str]:
    words = page.words
    yield from (words.message(one) for one in view.missing)
    if view.n_incomplete:
        yield words.text("note.pairs_incomplete", rank=view.global_rank, n=view.n_incomplete)
    if view.clock_error_ns >= UNBOUNDED_NS:
        yield words.text("note.pairs_no_clock")
    elif view.clock_error_ns:
        yield words.text("note.pairs_clock", clock_error_ns=view.clock_error_ns)
