"""A run report as text: the verdict in one sentence first, what it has seen and missed last."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.model.event import UNBOUNDED_NS
from comminsight.model.layout import LayoutProblem, ParallelLayout
from comminsight.model.report import RankRow, RunFacts, RunReport
from comminsight.model.tally import TALLY_NAMES, Severity
from comminsight.model.verdict import Coverage, Verdict
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Page
from comminsight.report.tables import write_ranks, write_steps
from comminsight.report.verdict_text import (
    HANG_CAUSES,
    SLOW_CAUSES,
    headline,
    meaning_name,
    no_verdict_headline,
    write_verdict,
)

MAX_BLOCKS = 3
# losses of which nobody knows how many records they are
UNCOUNTED = (
    "segment_frames_torn", "segment_frames_bad", "segment_bytes_skipped",
    "segment_files_unreadable",
)  # fmt: skip
MAX_EXCLUDED_RANKS = 4
MAX_COMMAND_CHARS = 200
MAX_NODES = 4
SIGNAL_BASE = 128  # exit codes from here on are signals, as a shell shows them


def render_report(
    report: RunReport, *, lang: str = "en", width: int = 80, color: bool = False
) -> str:
    """The whole report; plain text unless ``color``. Raises UsageError for an unknown language."""
    page = Page(lang=lang, width=width, color=color)
    _write_headline(page, report)
    page.heading("run")
    page.fields(fact_rows(report, page.words))
    write_steps(page, report)
    for verdict in report.verdicts[:MAX_BLOCKS]:
        if has_block(verdict):
            write_verdict(page, verdict, report)
    write_ranks(page, report)
    _write_coverage(page, report)
    _write_closing(page, report)
    return page.text()


def has_block(verdict: Verdict) -> bool:
    """Whether there is more to say than the sentence."""
    return (
        verdict.cause in HANG_CAUSES | SLOW_CAUSES
        or bool(verdict.culprits)
        or bool(verdict.evidence)
    )


def _write_headline(page: Page, report: RunReport) -> None:
    words = page.words
    if not report.verdicts:
        page.sentence(no_verdict_headline(words), style="bold")
        return
    first, *others = report.verdicts
    page.sentence(headline(first, report, words), style="bold")
    page.sentence(
        words.text(
            "verdict.line",
            cause=first.cause.value,
            meaning=words.word("meaning", meaning_name(first)),
            confidence=words.word("confidence", first.confidence.value),
        )
    )
    if others:
        page.heading("others")
        page.bullets(headline(verdict, report, words) for verdict in others)


def fact_rows(report: RunReport, words: Catalogue) -> Iterator[tuple[str, str]]:
    """What the run was and how it ended, as labelled fields."""
    facts = report.facts
    yield "run", facts.run_id
    yield "directory", facts.path
    yield "command", _cut(" ".join(facts.command), MAX_COMMAND_CHARS)
    has_none = not (facts.run_id or facts.hosts or report.coverage.records_read)
    ranks = "facts.ranks_told" if has_none else "facts.ranks"
    yield "ranks", words.text(ranks, seen=facts.ranks_seen, expected=facts.world_size)
    yield "nodes", _nodes(facts.hosts, words)
    yield "layout", layout_text(report.layout, words)
    yield "started", numbers.instant(facts.started_real_ns) if facts.started_real_ns else ""
    yield "ended", _end(facts, killed_ranks(report), words)
    # The ranks of one node share a clock: aligned is what it is anyway, raw was asked for.
    is_told = facts.clock == "raw" or (facts.clock and len(facts.hosts) > 1)
    yield "clock", words.word("clock", facts.clock) if is_told else ""
    yield "step_view", words.word("step_view", facts.step_view) if report.steps else ""


def layout_text(layout: ParallelLayout | None, words: Catalogue) -> str:
    """``TP 2 x DP 4 x PP 2``, innermost first, and what is not known of it; "" without any."""
    if layout is None or not layout.dimensions:
        return ""
    sizes = " x ".join(f"{d.role.value} {d.size}" for d in layout.dimensions if d.is_factor)
    inner = ", ".join(f"{d.role.value} {d.size}" for d in layout.dimensions if not d.is_factor)
    text = words.text("layout.inner", sizes=sizes, inner=inner) if inner else sizes
    if any(d.is_inferred for d in layout.dimensions):
        least = min(d.confidence for d in layout.dimensions)
        text = words.text("layout.inferred", layout=text, confidence=least)
    if layout.problem is LayoutProblem.NONE:
        return text
    return words.text(f"layout.{layout.problem.value}", layout=text, n=layout.unexplained_factor)


def _nodes(hosts: tuple[str, ...], words: Catalogue) -> str:
    if not hosts:
        return ""
    names = ", ".join(hosts[:MAX_NODES]) + (", ..." if len(hosts) > MAX_NODES else "")
    return words.text("facts.nodes", n=len(hosts), names=names)


def killed_ranks(report: RunReport) -> list[int]:
    """Ranks that are gone, without those known to have ended with an exit code of their own."""
    said = [e.message for v in report.verdicts for e in v.evidence]
    failed = {
        message.params.get("rank")
        for message in said
        if message.code == "evidence.died"
        and str(message.params.get("exit_status", "")).startswith("exit code")
    }
    return [rank for rank in report.facts.killed_ranks if rank not in failed]


def end_word(facts: RunFacts) -> str:
    """``failed`` for a command that was not killed but ended with a code of its own."""
    has_failed = facts.exit_code is not None and 0 < facts.exit_code < SIGNAL_BASE
    return "failed" if has_failed and facts.end in {"killed", "exited"} else facts.end


def _end(facts: RunFacts, killed: list[int], words: Catalogue) -> str:
    text = words.word("end", end_word(facts))
    if facts.exit_code is not None:
        text = words.text("facts.exit_code", end=text, code=facts.exit_code)
    if facts.started_real_ns and facts.ended_real_ns > facts.started_real_ns:
        lasted_ns = facts.ended_real_ns - facts.started_real_ns
        text = words.text("facts.lasted", end=text, lasted_ns=lasted_ns)
    if killed:
        text = words.text("facts.killed", end=text, ranks=killed)
    return text


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 3]}..."


def coverage_lines(coverage: Coverage, words: Catalogue, n_nodes: int) -> Iterator[str]:
    """What a verdict has seen, one sentence each; losses by reason."""
    seen, expected = coverage.ranks_seen, coverage.ranks_expected
    if not (coverage.records_read or coverage.records_lost or coverage.tally or n_nodes):
        yield from _told_of(coverage, words)
        return
    yield words.text("coverage.ranks", seen=seen, expected=expected)
    if coverage.ranks_missing:
        yield words.text("coverage.ranks_missing", ranks=list(coverage.ranks_missing))
    is_open = any(coverage.tally.get(name) for name in UNCOUNTED)
    code = "coverage.records_at_least" if is_open else "coverage.records"
    yield words.text(code, read=coverage.records_read, lost=coverage.records_lost)
    yield from _loss_lines(coverage.tally, words)
    yield words.text("coverage.steps", used=coverage.steps_used, excluded=coverage.steps_excluded)
    if n_nodes == 1 and not coverage.clock_error_ns:
        yield words.text("coverage.one_clock")
    elif coverage.clock_error_ns == UNBOUNDED_NS:
        yield words.text("coverage.clock_unknown")
    elif seen:
        yield words.text("coverage.clock", error_ns=coverage.clock_error_ns)
    if coverage.unseen_step_ratio:
        yield words.text("coverage.unseen", ratio=coverage.unseen_step_ratio)


def _told_of(coverage: Coverage, words: Catalogue) -> Iterator[str]:
    """Where nothing was recorded: of which ranks the other files tell at all."""
    seen, expected = coverage.ranks_seen, coverage.ranks_expected
    yield words.text("coverage.told_of", seen=seen, expected=expected)
    if coverage.ranks_missing:
        yield words.text("coverage.untold", ranks=list(coverage.ranks_missing))


def _loss_lines(tally: dict[str, int], words: Catalogue) -> Iterator[str]:
    for name, n in sorted(tally.items()):
        declared = TALLY_NAMES.get(name)
        if n and (declared is None or declared.severity is not Severity.INFO):
            yield words.text("coverage.loss", n=n, what=words.word("tally", name, n=n))


def _write_coverage(page: Page, report: RunReport) -> None:
    page.heading("coverage")
    page.bullets(coverage_lines(report.coverage, page.words, len(report.facts.hosts)))
    page.bullets(_excluded_lines(report, page.words))


def _excluded_lines(report: RunReport, words: Catalogue) -> Iterator[str]:
    """Which steps are in no mean, by rank: the fewest first, as far as a page bears it."""
    left_out = sorted((row for row in report.ranks if row.excluded_steps), key=_n_excluded)
    for row in left_out[:MAX_EXCLUDED_RANKS]:
        steps = numbers.rank_list(row.excluded_steps)
        yield words.text("coverage.excluded", rank=row.global_rank, steps=steps)
    if len(left_out) > MAX_EXCLUDED_RANKS:
        yield words.text("coverage.more_excluded", n=len(left_out) - MAX_EXCLUDED_RANKS)


def _n_excluded(row: RankRow) -> int:
    return len(row.excluded_steps)


def _write_closing(page: Page, report: RunReport) -> None:
    """What is missing, what to do next, and notes: each sentence once, in the verdicts' order."""
    verdicts = report.verdicts
    sections = {
        "missing": [message for verdict in verdicts for message in verdict.missing],
        "next": [message for verdict in verdicts for message in verdict.next_actions],
        "notes": list(report.notes),
    }
    for name, messages in sections.items():
        texts = dict.fromkeys(page.words.message(message) for message in messages)
        if texts:
            page.heading(name)
            page.bullets(texts)
