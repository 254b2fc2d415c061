"""Text of ``comminsight bench``: the plan, the times of each launch, what two records tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.model.bench import (
    BenchPlan,
    BenchRecord,
    BenchRow,
    BenchRun,
    Comparison,
    RowChange,
    Shape,
)  # fmt: skip
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Column, Page

NS_PER_MS = 1e6
COLUMNS = (
    Column("bench_collective", 26),
    Column("bench_payload"),
    Column("bench_median"),
    Column("bench_p95"),
    Column("bench_effective"),
    Column("bench_algbw"),
    Column("bench_busbw"),
)
CHANGE_COLUMNS = (
    Column("bench_collective", 26),
    Column("bench_payload"),
    Column("bench_ratio"),
    Column("bench_threshold"),
    Column("bench_p"),
    Column("bench_change", 28),
)


def render_bench(done: BenchRun, *, lang: str = "en", width: int = 80) -> str:
    """The plan of a dry run; else one table for each launch and what to know about it."""
    page = Page(lang=lang, width=width, color=False)
    plan = done.plan
    if not done.records:
        page.sentence(page.words.text("heading.bench_plan"), style="bold cyan")
        page.bullets(_planned(plan, page.words))
        page.commands(done.commands)
        page.note(page.words.text("bench.how_to_run"))
    _tables(page, done.paths, done.records)
    return page.text()


def render_records(
    paths: Sequence[str], records: Sequence[BenchRecord], *, lang: str = "en", width: int = 80
) -> str:
    """One table for each record and what to know about it."""
    page = Page(lang=lang, width=width, color=False)
    _tables(page, paths, records)
    return page.text()


def _tables(page: Page, paths: Sequence[str], records: Sequence[BenchRecord]) -> None:
    for path, record in zip(paths, records, strict=True):
        page.sentence(
            page.words.text("heading.bench", algorithm=record.name_requested,
                            backend=record.backend, n=record.world_size, dtype=record.dtype),
            style="bold cyan",
        )  # fmt: skip
        if record.metrics.rows:
            page.table(COLUMNS, [_cells(row) for row in record.metrics.rows])
        page.bullets(_remarks(record, path, page.words))


def render_comparison(found: Comparison, *, lang: str = "en", width: int = 80) -> str:
    """One row for each that both records have, and what only one has."""
    page = Page(lang=lang, width=width, color=False)
    words = page.words
    page.sentence(words.text("heading.bench_compare"), style="bold cyan")
    if found.rows:
        page.table(CHANGE_COLUMNS, [_change_cells(row, words) for row in found.rows])
    page.bullets(_comparison_remarks(found, words))
    return page.text()


def _planned(plan: BenchPlan, words: Catalogue) -> Iterator[str]:
    launches = plan.launches()
    names = tuple(launch.name for launch in launches)
    yield words.text("bench.plan_launches", n=len(launches), algorithms=names)
    yield words.text(
        "bench.plan_ranks", n=plan.n_ranks, backend=plan.backend, warmup=plan.warmup,
        repeats=plan.repeats,
    )  # fmt: skip
    sizes = tuple(dict.fromkeys(n for _, n in plan.cases()))
    yield words.text(
        "bench.plan_cases", collectives=plan.collectives, elements=sizes, dtype=plan.dtype
    )
    for launch in launches:
        if launch.collectives != plan.collectives:
            yield words.text(
                "bench.plan_only", algorithm=launch.name, collectives=launch.collectives,
                backend=plan.backend,
            )  # fmt: skip


def _cells(row: BenchRow) -> tuple[str, ...]:
    return (
        row.collective,
        numbers.size(row.payload_bytes_per_rank),
        numbers.duration(row.median_max_rank_ms * NS_PER_MS),
        numbers.duration(row.p95_max_rank_ms * NS_PER_MS),
        _rate(row.effective_payload_gbps),
        _rate(row.algbw_gbps),
        _rate(row.busbw_gbps),
    )


def _rate(value_gbs: float) -> str:
    """Small payloads have rates that two decimals would show as none."""
    return numbers.bandwidth(value_gbs) if value_gbs >= 0.1 else f"{value_gbs:.2g} GB/s"


def _remarks(record: BenchRecord, path: str, words: Catalogue) -> Iterator[str]:
    if record.failure:
        yield words.text("bench.failed", reason=record.failure)
    yield words.text(f"bench.decision_{record.decision.value}")
    yield from _observed(record, words)
    yield from _waiting(record.metrics.rows, words)
    if record.rs_ag_equals_all_reduce is not None:
        yield words.text(f"bench.{'same_sums' if record.rs_ag_equals_all_reduce else 'other_sums'}")
    for shape in record.metrics.shapes:
        yield from _shape(shape, words)
    yield words.text("bench.written", path=path)


def _waiting(rows: Sequence[BenchRow], words: Catalogue) -> Iterator[str]:
    n = sum(row.is_disturbed for row in rows)
    if n:
        yield words.text("bench.waiting", n=n, n_rows=len(rows))


def _observed(record: BenchRecord, words: Catalogue) -> Iterator[str]:
    """What was told, by where it was told."""
    if isinstance(record.algorithm_observed, str):
        return
    for source in dict.fromkeys(one.source for one in record.algorithm_observed):
        told = [one for one in record.algorithm_observed if one.source == source]
        seen = sorted({" ".join((one.op, one.algo, one.proto)).strip() for one in told})
        yield words.text(f"bench.observed_{source}", seen=seen)


def _shape(shape: Shape, words: Catalogue) -> Iterator[str]:
    if shape.latency_knee_bytes is not None:
        yield words.text(
            "bench.knee", name=shape.collective, size_bytes=shape.latency_knee_bytes
        )  # fmt: skip
    if shape.plateau_from_bytes is not None:
        yield words.text(
            "bench.plateau", name=shape.collective, size_bytes=shape.plateau_from_bytes,
            rate_gbs=shape.plateau_gbps,
        )  # fmt: skip


def _change_cells(row: RowChange, words: Catalogue) -> tuple[str, ...]:
    return (
        row.collective,
        numbers.size(row.payload_bytes_per_rank),
        f"{row.ratio:.3f}",
        f"{row.threshold_ratio:.3f}",
        f"{row.p_value:.4f}",
        words.text(f"bench.change_{row.change.value}"),
    )


def _comparison_remarks(found: Comparison, words: Catalogue) -> Iterator[str]:
    if found.differs:
        yield words.text("bench.differs", names=found.differs)
    elif not found.rows:
        yield words.text("bench.nothing_common")
    elif not found.has_regression:
        yield words.text("bench.no_regression")
    for lone in found.dropped:
        yield words.text(
            "bench.dropped", name=lone.collective, size_bytes=lone.payload_bytes_per_rank
        )
