"""Text of the smaller answers: all steps of a run, the ops of one step, how the templates fared."""

from __future__ import annotations

from collections.abc import Sequence

from comminsight.model.report import StepRow
from comminsight.model.verdict import Coverage, Message
from comminsight.model.views import UNFINISHED_NS, OpRow, PhaseRow, StepOps, TemplateScore
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Column, Page
from comminsight.report.tables import STEP_COLUMNS, step_cells
from comminsight.report.text import coverage_lines

OP_COLUMNS = (
    Column("op", 14),
    Column("comm", 20),
    Column("match_seq"),
    Column("size"),
    Column("start_ms"),
    Column("duration_ms"),
    Column("wait_ms"),
    Column("waited_for"),
    Column("state", 10),
)
PHASE_COLUMNS = (
    Column("phase", 10),
    Column("microbatch", 12),
    Column("start_ms"),
    Column("duration_ms"),
    Column("ops"),
)
PHASES_PER_TABLE = 6  # fit a narrow terminal
GAP_COLUMNS = (Column("n_lost"), Column("n_late"))
WIDE_OP_COLUMNS = (*OP_COLUMNS, Column("op_seq"))
WIDE_CHARS = 100
TEMPLATE_COLUMNS = (
    Column("template", 16),
    Column("chosen", 8),
    Column("version"),
    Column("priority"),
    Column("n_open"),
    Column("n_anchor"),
    Column("n_close"),
    Column("n_steps"),
    Column("covered"),
)
_OWN_DECIDES = {"steps_look_like_parts", "steps_look_like_several"}  # unless one's own says so


def render_steps(
    steps: Sequence[StepRow],
    coverage: Coverage,
    *,
    run: str = "",
    n_nodes: int = 0,
    seen: str = "",
    scores: Sequence[TemplateScore] = (),
    lang: str = "en",
    width: int = 80,
) -> str:
    """Every step over all ranks and its phases, then what was seen; ``seen`` (roles and ops) and
    ``scores`` tell why there are none."""
    page = Page(lang=lang, width=width, color=False)
    page.sentence(page.words.text("heading.step_list", run=run), style="bold cyan")
    if steps:
        _write_step_rows(page, steps)
        _write_phases(page, steps)
    else:
        page.bullets([page.words.text("note.no_steps")])
        page.bullets([page.words.text("note.seen", seen=seen)] if seen else [])
    page.heading("seen")
    page.bullets(coverage_lines(coverage, page.words, n_nodes))
    if scores and not steps:
        page.sentence("")
        _write_scores(page, scores)
    return page.text()


def _write_step_rows(page: Page, steps: Sequence[StepRow]) -> None:
    """The steps; a column for lost and late records only where there are any."""
    has_gaps = any(row.n_lost or row.n_late for row in steps)
    columns = (*STEP_COLUMNS[:-1], *GAP_COLUMNS, STEP_COLUMNS[-1]) if has_gaps else STEP_COLUMNS
    rows = []
    for row in steps:
        cells = step_cells(row, page.words)
        gaps = (numbers.count(row.n_lost), numbers.count(row.n_late)) if has_gaps else ()
        rows.append((*cells[:-1], *gaps, cells[-1]))
    page.table(columns, rows)


def _write_phases(page: Page, steps: Sequence[StepRow]) -> None:
    """Time per phase of each step that has phases; the columns are the kinds that occur."""
    kinds = list(dict.fromkeys(kind for row in steps for kind in row.phase_ns))
    if not kinds:
        return
    page.heading("phases")
    rows = [row for row in steps if row.phase_ns]
    for first in range(0, len(kinds), PHASES_PER_TABLE):
        shown = kinds[first : first + PHASES_PER_TABLE]
        columns = [Column("step"), *(Column(f"phase_{kind}") for kind in shown)]
        is_last = first + PHASES_PER_TABLE >= len(kinds)
        if has_microbatches := is_last and any(row.n_microbatches for row in rows):
            columns.append(Column("microbatches"))
        cells = [_phase_cells(row, shown, is_counted=has_microbatches) for row in rows]
        page.table(columns, cells)
    page.note(page.words.text("note.phases"))


def _phase_cells(row: StepRow, kinds: Sequence[str], *, is_counted: bool) -> tuple[str, ...]:
    times = [row.phase_ns.get(kind) for kind in kinds]
    cells = ["-" if time_ns is None else numbers.milliseconds(time_ns) for time_ns in times]
    if is_counted:
        cells.append(numbers.count(row.n_microbatches) if row.n_microbatches else "-")
    return (numbers.count(row.step), *cells)


def render_step_changes(
    changes: Sequence[Message], *, lang: str = "en", width: int = 80, color: bool = False
) -> str:
    """What became different from one step to the next; nothing where nothing did."""
    page = Page(lang=lang, width=width, color=color)
    if changes:
        page.heading("changes")
        page.bullets(page.words.message(change) for change in changes)
    return page.text()


def render_ops(view: StepOps, *, lang: str = "en", width: int = 80, color: bool = False) -> str:
    """The ops of one rank in one step in the order of their start."""
    page = Page(lang=lang, width=width, color=color)
    words = page.words
    page.sentence(
        words.text(
            "heading.ops", rank=view.global_rank, step=view.step, n=len(view.ops),
            span_ns=view.span_ns,
        ),
        style="bold cyan",
    )  # fmt: skip
    page.fields(
        [
            ("run", view.run_id),
            ("node", view.host),
            ("template", view.template),
            ("step_view", words.word("step_view", view.step_view)),
            ("started", numbers.instant(view.start_real_ns) if view.start_real_ns else ""),
        ]
    )
    if not view.ops:
        page.bullets([words.text("note.no_ops")])
        return page.text()
    is_wide = width >= WIDE_CHARS
    columns = WIDE_OP_COLUMNS if is_wide else OP_COLUMNS
    page.sentence("")
    page.table(
        columns,
        [_op_cells(row, words)[: len(columns)] for row in view.ops],
        marked=[number for number, row in enumerate(view.ops) if row.state != "done"],
    )
    page.note(words.text("note.offsets"))
    _write_phases_of_step(page, view.phases)
    return page.text()


def _write_phases_of_step(page: Page, phases: Sequence[PhaseRow]) -> None:
    """When each phase was, and of which microbatch, counted from 1."""
    if not phases:
        return
    page.heading("phases_of_step")
    page.table(PHASE_COLUMNS, [_phase_row(phase, page.words) for phase in phases])


def _phase_row(phase: PhaseRow, words: Catalogue) -> tuple[str, ...]:
    return (
        words.text(f"column.phase_{phase.kind}"),
        _microbatch(phase, words),
        numbers.milliseconds(phase.start_offset_ns),
        numbers.milliseconds(phase.duration_ns),
        numbers.count(phase.n_ops) if phase.n_ops else "-",
    )


def _microbatch(phase: PhaseRow, words: Catalogue) -> str:
    if phase.microbatch < 0:
        return "-"
    if not phase.n_microbatches:
        return numbers.count(phase.microbatch + 1)
    return words.text("note.microbatch_of", n=phase.microbatch + 1, total=phase.n_microbatches)


def _op_cells(row: OpRow, words: Catalogue) -> tuple[str, ...]:
    has_ended = row.duration_ns != UNFINISHED_NS
    return (
        row.op if row.peer < 0 else f"{row.op} {row.peer}",
        row.comm_label,
        str(row.match_seq),
        numbers.size(row.size_bytes),
        numbers.milliseconds(row.start_offset_ns),
        numbers.milliseconds(row.duration_ns) if has_ended else "-",
        numbers.milliseconds(row.waited_ns) if row.waited_ns else "-",
        str(row.waited_for) if row.waited_for >= 0 else "-",
        words.word("state", row.state),
        str(row.op_seq),
    )


def render_template_scores(
    scores: Sequence[TemplateScore], *, lang: str = "en", width: int = 80, color: bool = False
) -> str:
    """Which step templates were tried, what matched, and why the others were not taken."""
    page = Page(lang=lang, width=width, color=color)
    _write_scores(page, scores)
    return page.text()


def _write_scores(page: Page, scores: Sequence[TemplateScore]) -> None:
    words = page.words
    page.sentence(words.text("heading.templates"), style="bold cyan")
    if not scores:
        page.bullets([words.text("note.no_templates")])
        return
    page.table(TEMPLATE_COLUMNS, [_score_cells(score, words) for score in scores])
    refused = [score for score in scores if score.reason]
    if refused:
        page.sentence("")
        page.bullets(f"{score.template}: {_refusal(score, words)}" for score in refused)
    if len(refused) == len(scores) and any(one.reason in _OWN_DECIDES for one in refused):
        page.bullets([words.text("template.own_decides")])


def _score_cells(score: TemplateScore, words: Catalogue) -> tuple[str, ...]:
    return (
        score.template,
        words.word("word", "chosen") if score.is_chosen else "",
        str(score.version),
        str(score.priority),
        numbers.count(score.n_open),
        numbers.count(score.n_anchor),
        numbers.count(score.n_close),
        numbers.count(score.n_steps),
        numbers.percent(score.covered_ops_ratio),
    )


def _refusal(score: TemplateScore, words: Catalogue) -> str:
    reason = words.word("refusal", score.reason)
    if score.n_parts > 1:
        reason = words.text("template.parts", reason=reason, n=score.n_parts)
    return f"{reason} ({'; '.join(score.missing_symbols)})" if score.missing_symbols else reason
