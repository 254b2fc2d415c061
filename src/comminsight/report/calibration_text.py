"""Text of ``comminsight calibrate``: what a correction changes, and who changed the state when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from comminsight.model.calibration import (
    CalibrationHistory,
    CalibrationState,
    CalibrationView,
    CorrectionCounts,
    HistoryEntry,
    StepMark,
    StepSpan,
)
from comminsight.model.verdict import Message
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Column, Page

MAX_SPANS = 40
SPAN_COLUMNS = (
    Column("rank"),
    Column("local_steps"),
    Column("training_steps"),
    Column("mark", 10),
    Column("confidence", 8),
    Column("known_by", 60),
)
HISTORY_COLUMNS = (
    Column("number"),
    Column("at", 24),
    Column("action", 8),
    Column("who", 24),
    Column("renumbered"),
    Column("correction", 32),
    Column("why", 40),
)


def render_calibration(
    view: CalibrationView, *, run: str = "", lang: str = "en", width: int = 80
) -> str:
    """What the correction does, span by span where it does anything, and whether it is in force."""
    page = Page(lang=lang, width=width, color=False)
    words = page.words
    page.sentence(words.text("heading.calibration", run=run), style="bold cyan")
    page.bullets(_count_lines(view.correction.counts, words))
    spans = [
        (session.global_rank, span)
        for session in view.correction.sessions
        for span in session.spans
        if span.mark is not StepMark.NONE or span.step != span.local_step
    ]
    if spans:
        page.heading("calibration_changes")
        page.table(
            SPAN_COLUMNS, [_span_cells(rank, span, words) for rank, span in spans[:MAX_SPANS]]
        )
    if len(spans) > MAX_SPANS:
        page.note(words.text("note.more_spans", n=len(spans) - MAX_SPANS))
    page.sentence("")
    entry = view.state.entry
    applied = words.text("calibration.applied", correction=entry.correction if entry else "")
    page.bullets(
        [applied]
        if view.is_applied
        else [*_state_lines(view.state, words), words.text("calibration.preview")]
    )
    return page.text()


def render_calibration_history(
    history: CalibrationHistory, *, run: str = "", lang: str = "en", width: int = 80
) -> str:
    """Every change in order, then what is shown now."""
    page = Page(lang=lang, width=width, color=False)
    words = page.words
    page.sentence(words.text("heading.calibration_history", run=run), style="bold cyan")
    if history.entries:
        page.table(HISTORY_COLUMNS, [_entry_cells(entry, words) for entry in history.entries])
    else:
        page.bullets([words.text("calibration.none")])
    page.bullets(_state_lines(history.state, words))
    if history.problems:
        page.bullets([words.text("calibration.problem", names=", ".join(history.problems))])
    if history.set_aside:
        page.bullets([words.text("calibration.set_aside", names=", ".join(history.set_aside))])
    return page.text()


def render_step_numbers(
    view: str, notes: Sequence[Message], *, lang: str = "en", width: int = 80
) -> str:
    """Whose the numbers of the steps above are, ``raw`` or ``calibrated``, and what to know."""
    page = Page(lang=lang, width=width, color=False)
    words = page.words
    page.heading("step_numbers")
    page.bullets([words.word("step_view", view), *(words.message(note) for note in notes)])
    return page.text()


def _count_lines(counts: CorrectionCounts, words: Catalogue) -> Iterator[str]:
    yield words.text(
        "calibration.counts", n_local_steps=counts.n_local_steps, n_steps=counts.n_steps,
        n_sessions=counts.n_sessions,
    )  # fmt: skip
    said = {
        "renumbered": counts.n_renumbered,
        "fused": counts.n_fused,
        "split": counts.n_split,
        "missing": counts.n_missing,
        "left_raw": counts.n_raw,
        "parts": counts.n_parts if counts.n_parts > 1 else 0,
    }
    yield from (words.text(f"calibration.{name}", n=n) for name, n in said.items() if n)
    if not any(said.values()):
        yield words.text("calibration.same")
    sure = {name: counts.by_confidence.get(name, 0) for name in ("high", "medium", "low")}
    yield words.text("calibration.sure", **sure)


def _span_cells(rank: int, span: StepSpan, words: Catalogue) -> tuple[str, ...]:
    known_by = ", ".join(words.word("step_proof", proof.value) for proof in span.proofs)
    is_raw = span.mark is StepMark.RAW
    return (
        str(rank),
        _range(span.local_step, span.local_step + span.n_steps - 1),
        "-" if is_raw else _range(span.step - span.n_before, _last(span)),
        words.word("step_mark", span.mark.value) if span.mark else "",
        words.word("confidence", span.confidence.value),
        words.word("raw_because", span.reason) if is_raw else known_by,
    )


def _last(span: StepSpan) -> int:
    return span.step + span.n_steps - 1 + span.n_behind


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _entry_cells(entry: HistoryEntry, words: Catalogue) -> tuple[str, ...]:
    return (
        str(entry.number),
        numbers.instant(entry.at_real_ns),
        words.word("calibration_action", entry.action.value),
        entry.who,
        numbers.count(entry.counts.n_renumbered) if entry.counts else "",
        entry.correction,
        entry.reason,
    )


def _state_lines(state: CalibrationState, words: Catalogue) -> Iterator[str]:
    yield words.text("calibration.state", view=words.word("step_view", state.view.value))
    if state.stale:
        yield words.text("note.calibration_stale", reason=f"stale.{state.stale}")
