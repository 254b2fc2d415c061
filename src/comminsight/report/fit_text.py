"""Text of ``comminsight fit``: startup and rate of each op, crossovers, what became worse."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.model.cost_model import CostFit, CostReport, GroupTier
from comminsight.model.ops import Op
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Column, Page

COLUMNS = (
    Column("fit_what", 44),
    Column("fit_startup"),
    Column("fit_range"),
    Column("fit_rate"),
    Column("fit_range"),
    Column("fit_half"),
)


def render_fit(report: CostReport, *, lang: str = "en", width: int = 80) -> str:
    """One row for each model, then what has none and why, crossovers and drift."""
    page = Page(lang=lang, width=width, color=False)
    words = page.words
    page.sentence(words.text("heading.fit"), style="bold cyan")
    fitted = [fit for fit in report.fits if fit.no_fit is None]
    if fitted:
        page.table(COLUMNS, [_cells(fit, words) for fit in fitted])
    page.bullets(_remarks(report, words))
    return page.text()


def _cells(fit: CostFit, words: Catalogue) -> tuple[str, ...]:
    return (
        _name(fit.op, fit.tier, fit.n_ranks, f"{fit.algorithm} {fit.protocol} {fit.run}", words),
        numbers.duration(fit.startup_ns),
        f"{numbers.duration(fit.startup_low_ns)} - {numbers.duration(fit.startup_high_ns)}",
        numbers.bandwidth(fit.rate_gbs),
        f"{numbers.bandwidth(fit.rate_low_gbs)} - {numbers.bandwidth(fit.rate_high_gbs)}",
        numbers.size(fit.half_bytes),
    )


def _remarks(report: CostReport, words: Catalogue) -> Iterator[str]:
    if not report.fits:
        yield words.text("fit.none")
    for fit in report.fits:
        name = _name(fit.op, fit.tier, fit.n_ranks, f"{fit.algorithm} {fit.run}", words)
        if fit.no_fit is not None:
            yield words.text(f"fit.{fit.no_fit.value}", name=name, n=fit.n_rows)
        elif numbers.finite(fit.rate_high_gbs) is None:
            yield words.text("fit.no_rate", name=name, size_bytes=fit.largest_bytes)
    for row in report.crossovers:
        yield words.text(
            "fit.crossover", name=_name(row.op, row.tier, row.n_ranks, "", words),
            below=row.below, above=row.above, size_bytes=row.size_bytes, low_bytes=row.low_bytes,
            high_bytes=row.high_bytes,
        )  # fmt: skip
    for drift in report.drifts:
        name = _name(drift.op, drift.tier, drift.n_ranks, drift.algorithm, words)
        for is_worse, code in (
            (drift.is_startup_worse, "fit.startup_worse"), (drift.is_rate_worse, "fit.rate_worse")
        ):  # fmt: skip
            if is_worse:
                yield words.text(code, name=name, before=drift.before, after=drift.after)


def _name(op: int, tier: GroupTier, n_ranks: int, more: str, words: Catalogue) -> str:
    known = Op(op).name.lower() if op in {one.value for one in Op} else str(op)
    tier_name = words.text(f"fit.tier_{tier.name.lower()}")
    of = words.text("fit.ranks", n=n_ranks) if n_ranks else ""
    return " ".join(f"{known} {tier_name} {of} {more}".split())
