"""The tables of a report: which steps and ranks are worth a row. Rows are chosen, not made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.model.report import RankRow, RunReport, StepRow
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Column, Page

MAX_RANK_ROWS = 10
CULPRIT_MARK = "*"

STEP_COLUMNS = (
    Column("step"),
    Column("period_ms"),
    Column("span_ms"),
    Column("gap_ms"),
    Column("ranks"),
    Column("ops"),
    Column("complete", 8),
    Column("template", 14),
)
CHOSEN_STEP_COLUMNS = (Column("which", 14), *STEP_COLUMNS)
RANK_COLUMNS = (
    Column("rank"),
    Column("node", 14),
    Column("place", 14),
    Column("index"),
    Column("caused_ms"),
    Column("origin_ms"),
    Column("passed_ms"),
    Column("waited_ms"),
)


def step_time_ns(row: StepRow) -> int:
    """The step time a user feels; the window's length where the next Open is not known."""
    return row.period_ns or row.span_ns


def step_cells(row: StepRow, words: Catalogue) -> tuple[str, ...]:
    """The cells of one step in the order of ``STEP_COLUMNS``."""
    return (
        numbers.count(row.step),
        numbers.milliseconds(row.period_ns) if row.period_ns else "-",
        numbers.milliseconds(row.span_ns),
        numbers.milliseconds(row.gap_ns) if row.period_ns else "-",
        numbers.count(row.n_ranks),
        numbers.count(row.n_ops),
        words.word("word", "yes" if row.is_complete else "no"),
        row.template,
    )


def median_step(rows: Sequence[StepRow]) -> StepRow:
    """The step in the middle by step time: a real step, so that it can be looked up."""
    return sorted(rows, key=step_time_ns)[(len(rows) - 1) // 2]


def chosen_steps(rows: Sequence[StepRow], onset: int) -> Iterator[tuple[str, StepRow]]:
    """(catalogue code, step) of the rows a reader wants: ends, middle, slowest, around the onset.

    Steps without a period (the last one) take no part in the middle and the slowest.
    """
    timed = [row for row in rows if row.period_ns] or list(rows)
    yield "first", rows[0]
    before = [row for row in timed if row.step < onset]
    since = [row for row in timed if row.step >= onset]
    if before and since:
        yield "before", median_step(before)
        yield "since", median_step(since)
    else:
        yield "median", median_step(timed)
    yield "slowest", max(timed, key=step_time_ns)
    yield "last", rows[-1]


def write_steps(page: Page, report: RunReport) -> None:
    """The chosen steps of a report."""
    if not report.steps:
        return
    onset = report.verdicts[0].first_step if report.verdicts else -1
    page.heading("steps", n=len(report.steps))
    chosen = list(chosen_steps(report.steps, onset))
    page.table(
        CHOSEN_STEP_COLUMNS,
        [
            (page.words.text(f"which.{code}", step=onset), *step_cells(row, page.words))
            for code, row in chosen
        ],
    )
    if any(code == "before" for code, _ in chosen):
        page.note(page.words.text("note.sample_steps", step=onset))


def blame_order(row: RankRow) -> tuple[float, float, int]:
    """Sort key: the origin of most delay first, then the highest index, then the rank."""
    index_pct = numbers.finite(row.straggler_index_pct) or 0.0
    return (-row.origin_delay_ns, -index_pct, row.global_rank)


def write_ranks(page: Page, report: RunReport) -> None:
    """The ranks that began most delay, the culprits marked, and what bounds the rest."""
    if not any(row.n_steps for row in report.ranks):
        return  # means over no steps say nothing
    culprits = {rank for verdict in report.verdicts for rank in verdict.culprits}
    ordered = sorted(report.ranks, key=blame_order)
    shown, rest = ordered[:MAX_RANK_ROWS], ordered[MAX_RANK_ROWS:]
    page.heading("ranks", n=len(shown), total=len(ordered))
    page.table(
        RANK_COLUMNS,
        [_rank_cells(row, is_culprit=row.global_rank in culprits) for row in shown],
        marked=[number for number, row in enumerate(shown) if row.global_rank in culprits],
    )
    page.note(page.words.text("note.columns"))
    if rest:
        page.note(
            page.words.text(
                "note.other_ranks",
                n=len(rest),
                origin_ns=max(row.origin_delay_ns for row in rest),
                index_pct=max(numbers.finite(row.straggler_index_pct) or 0.0 for row in rest),
            )
        )


def _rank_cells(row: RankRow, *, is_culprit: bool) -> tuple[str, ...]:
    index = numbers.finite(row.straggler_index_pct)
    return (
        f"{CULPRIT_MARK if is_culprit else ''}{row.global_rank}",
        row.host,
        row.coords,
        numbers.UNREADABLE if index is None else f"{index:,.1f}",
        numbers.milliseconds(row.caused_wait_ns),
        numbers.milliseconds(row.origin_delay_ns),
        numbers.milliseconds(row.passed_on_delay_ns),
        numbers.milliseconds(row.waited_ns),
    )
