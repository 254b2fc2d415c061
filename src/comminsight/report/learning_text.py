"""What template learning found, as text: the proposal, its support, and where it does not hold."""

from __future__ import annotations

from comminsight.model.learning import CounterExample, FoundPeriod, TemplateLearning
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Column, Page

PERIOD_COLUMNS = (
    Column("marked_by", 64),
    Column("standing", 16),
    Column("n_times"),
    Column("period_ops"),
    Column("period_ms"),
    Column("alike"),
    Column("ranks"),
)
LEARNERS = ("gradient_bytes", "until_open", "in_flight")


def render_learning(
    learning: TemplateLearning, *, run: str = "", lang: str = "en", width: int = 80
) -> str:
    """The whole answer. Raises UsageError for an unknown language."""
    page = Page(lang=lang, width=width, color=False)
    page.sentence(page.words.text("heading.learning", run=run), style="bold cyan")
    page.bullets(_standing(learning, page.words))
    if learning.opens:
        page.heading("proposal", name=learning.name)
        page.fields(_bounds(learning, page.words))
    if learning.periods:
        page.heading("periods")
        page.table(PERIOD_COLUMNS, [_cells(period, page.words) for period in learning.periods])
    if examples := learning.counter_examples:
        page.heading("counter_examples", n=learning.n_counter_examples)
        page.bullets(_example(example, page.words) for example in examples)
    return page.text()


def _standing(learning: TemplateLearning, words: Catalogue) -> list[str]:
    said = []
    if learning.refusal is not None:
        said.append(words.text("learning.refused", reason=words.message(learning.refusal)))
    if learning.n_periods:
        support = {"n": learning.n_regular, "total": learning.n_periods}
        said.append(words.text("learning.support", n_ranks=learning.n_ranks, **support))
        fitting = {"n": learning.n_fitting_ranks, "n_ranks": learning.n_ranks}
        said.append(words.text("learning.fit", n_steps=learning.n_steps, **fitting))
    if learning.refusal is None:
        code = "one_group" if learning.n_groups == 1 else "groups"
        said.append(words.text(f"learning.{code}", n=learning.n_groups))
    if learning.cut is not None:
        said.append(words.text(f"learning.cut_{learning.cut.value}"))
    return said


def _bounds(learning: TemplateLearning, words: Catalogue) -> list[tuple[str, str]]:
    is_learnt = learning.close in LEARNERS
    close = words.text(f"learning.close_{learning.close}") if is_learnt else learning.close
    return [("open", learning.opens), ("anchor", learning.anchor), ("close", close)]


def _cells(period: FoundPeriod, words: Catalogue) -> tuple[str, ...]:
    return (
        period.label,
        words.word("period", period.standing.value),
        numbers.count(period.n_times),
        numbers.count(period.n_ops),
        numbers.milliseconds(period.duration_ns),
        numbers.percent(period.regular_ratio),
        numbers.count(period.n_ranks),
    )


def _example(example: CounterExample, words: Catalogue) -> str:
    none = words.word("word", "none")
    return words.text(
        "learning.example",
        ranks=example.ranks,
        period=example.period,
        seq=example.seq,
        extra=", ".join(example.extra) or none,
        missing=", ".join(example.missing) or none,
    )
