"""Text of ``comminsight exposed``: where communication time goes, by op, rank and step."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.model.exposed import (
    ExposedReport,
    ExposureSource,
    OpExposure,
    OwnerExposed,
    OwnerKind,
    PartExposed,
)
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Column, Page

MAX_OPS, MAX_RANKS, MAX_STEPS, MAX_OWNERS = 12, 16, 12, 8
MAX_SHORT = 5
OP_COLUMNS = (
    Column("op", 16), Column("communicator", 28), Column("calls"), Column("size_each"),
    Column("communication"), Column("exposed"), Column("share"), Column("overlap"), Column("bound"),
)  # fmt: skip
RANK_COLUMNS = (
    Column("rank"), Column("steps"), Column("span"), Column("compute"), Column("communication"),
    Column("exposed"), Column("overlap"), Column("dark"),
)  # fmt: skip
STEP_COLUMNS = (
    Column("step"), Column("ranks"), Column("span"), Column("communication"), Column("exposed"),
    Column("share"),
)  # fmt: skip
OWNER_COLUMNS = (
    Column("went_into", 40), Column("phase", 10), Column("calls"), Column("exposed"),
    Column("share"), Column("alone"), Column("passed_on"),
)  # fmt: skip
PART_COLUMNS = (Column("of_part", 24), Column("calls"), Column("exposed"), Column("share"))


def render_exposed(report: ExposedReport, *, lang: str = "en", width: int = 100) -> str:
    """The hotspot first, then the tables, what is missing, and what to do."""
    page = Page(lang=lang, width=width, color=False)
    words = page.words
    page.sentence(_headline(report, words), style="bold cyan")
    page.bullets(words.message(one) for one in report.findings)
    page.note(words.text(f"exposed.source_{report.source.value}"))
    page.table(OP_COLUMNS, [_op_cells(one, words) for one in report.ops[:MAX_OPS]])
    page.bullets(_more(len(report.ops), MAX_OPS, words))
    _went_into(report, page)
    page.heading("exposed_ranks")
    _ranks(report, page)
    page.bullets([*_more(len(report.ranks), MAX_RANKS, words), *_imbalance(report, words)])
    page.heading("exposed_steps")
    page.table(STEP_COLUMNS, [
        (
            str(one.step) if one.step >= 0 else "-", str(one.n_ranks),
            numbers.duration(one.span_ns), numbers.duration(one.communication_ns),
            numbers.duration(one.exposed_ns), _ratio(one.exposed_ratio if report.ops else None),
        )
        for one in report.steps[:MAX_STEPS]
    ])  # fmt: skip
    page.bullets(_more(len(report.steps), MAX_STEPS, words))
    page.heading("missing")
    page.bullets(_missing(report, words))
    if report.ops and report.ops[0].advice:
        page.heading("next")
        page.bullets(words.message(one) for one in report.ops[0].advice)
    return page.text()


def _went_into(report: ExposedReport, page: Page) -> None:
    """Who was awaited, and the shares of roles and phases where any is known."""
    words = page.words
    if report.owners:
        page.heading("exposed_owners")
        rows = [_owner_cells(one, words) for one in report.owners[:MAX_OWNERS]]
        page.table(OWNER_COLUMNS, rows)
        page.bullets(_more(len(report.owners), MAX_OWNERS, words))
        if any(one.kind is OwnerKind.LATE for one in report.owners):
            page.note(words.text("exposed.entered_last"))
    for code, known in (("exposed_roles", report.roles), ("exposed_phases", report.phases)):
        if any(one.name for one in known):
            page.heading(code)
            page.table(PART_COLUMNS, [_part_cells(one, words) for one in known])


def _owner_cells(one: OwnerExposed, words: Catalogue) -> tuple[str, ...]:
    is_late = one.kind is OwnerKind.LATE
    doubt = f"_{one.doubt.value}" if one.doubt is not None else ""
    return (
        words.text(f"exposed.owner_{one.kind.value}{doubt}", rank=one.global_rank),
        one.phase or ("?" if is_late else "-"),
        f"{one.n_calls:,}",
        numbers.duration(one.exposed_ns),
        _ratio(one.share_ratio),
        numbers.duration(one.alone_ns) if is_late else "-",
        _ratio(one.passed_on_ratio) if is_late else "-",
    )


def _part_cells(one: PartExposed, words: Catalogue) -> tuple[str, ...]:
    name = one.name or words.text("exposed.part_unknown")
    exposed = numbers.duration(one.exposed_ns)
    return name, f"{one.n_calls:,}", exposed, _ratio(one.share_ratio)


def _ranks(report: ExposedReport, page: Page) -> None:
    by_exposed = sorted(report.ranks, key=lambda one: -one.exposed_ns)[:MAX_RANKS]
    page.table(RANK_COLUMNS, [
        (
            str(one.global_rank), str(one.n_steps), numbers.duration(one.span_ns),
            numbers.duration(one.compute_ns) + ("*" if one.is_compute_inferred else ""),
            numbers.duration(one.communication_ns), numbers.duration(one.exposed_ns),
            _ratio(one.overlap_ratio), numbers.duration(one.dark_ns),
        )
        for one in by_exposed
    ])  # fmt: skip
    if any(one.is_compute_inferred for one in by_exposed):
        page.note(page.words.text("exposed.inferred"))


def render_hotspot(report: ExposedReport, *, lang: str = "en", width: int = 100) -> str:
    """The shortest answer: the hotspot, the first ops, what their time went into, what to do."""
    page = Page(lang=lang, width=width, color=False)
    words = page.words
    page.sentence(_headline(report, words), style="bold cyan")
    page.note(words.text(f"exposed.source_{report.source.value}"))
    page.table(OP_COLUMNS, [_op_cells(one, words) for one in report.ops[:MAX_SHORT]])
    if report.owners:
        page.heading("exposed_owners")
        rows = [_owner_cells(one, words) for one in report.owners[:MAX_SHORT]]
        page.table(OWNER_COLUMNS, rows)
    page.bullets(words.message(one) for op in report.ops[:1] for one in op.advice)
    return page.text()


def _headline(report: ExposedReport, words: Catalogue) -> str:
    if not report.ops:
        return words.text("exposed.nothing")
    first = report.ops[0]
    if not first.exposed_ns:
        return words.text("exposed.all_hidden")
    code = "hotspot" if report.source is ExposureSource.TRACE else "most_recorded"
    return words.text(
        f"exposed.{code}", op=first.op, exposed_ns=first.exposed_ns, ratio=first.share_ratio,
        n_ranks=len(report.ranks),
    )  # fmt: skip


def _op_cells(one: OpExposure, words: Catalogue) -> tuple[str, ...]:
    return (
        one.op,
        one.comm_label or "-",
        f"{one.n_calls:,}",
        numbers.size(one.median_size_bytes) if one.median_size_bytes else "?",
        numbers.duration(one.communication_ns),
        numbers.duration(one.exposed_ns),
        _ratio(one.share_ratio),
        _ratio(one.overlap_ratio),
        words.text(f"exposed.bound_{one.bound.value}"),
    )


def _ratio(ratio: float | None) -> str:
    return "?" if ratio is None else numbers.percent(ratio)


def _more(n: int, n_shown: int, words: Catalogue) -> Iterator[str]:
    if n > n_shown:
        yield words.text("exposed.more", n=n - n_shown)


def _imbalance(report: ExposedReport, words: Catalogue) -> Iterator[str]:
    if report.rank_imbalance_ratio is None:
        yield words.text("exposed.no_imbalance")
    else:
        yield words.text("exposed.imbalance", ratio=report.rank_imbalance_ratio)


def _missing(report: ExposedReport, words: Catalogue) -> Iterator[str]:
    yield from (words.message(one) for one in report.missing)
    for one in report.unread:
        yield f"{one.file}: {words.message(one.reason)}"
