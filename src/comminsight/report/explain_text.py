"""One verdict explained: its chain level by level with the command that opens each reference, how
it was told, what would refute it, and which checks are still open.

Of a hang the text says which op did not progress first and who held it. That is a place to look,
and it is never called the root cause: log, hardware and stacks decide that.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from comminsight.errors import InputError
from comminsight.model.reference import evidence_ref, op_ref_text, parse_reference, verdict_ref
from comminsight.model.report import RunReport
from comminsight.model.verdict import ChainLink, Evidence, Verdict
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Page
from comminsight.report.verdict_text import (
    chain_value,
    evidence_line,
    headline,
    is_hang,
    op_phrase,
)

MAX_EVIDENCE = 12
# what each further check would be evidence of, were it there
CHECKS: dict[str, frozenset[str]] = {
    "log": frozenset({"log"}),
    "hardware": frozenset({"counter", "host"}),
    "stacks": frozenset({"stack"}),
}


def find_verdict(report: RunReport, wanted: str) -> int:
    """The number (from 1) of the verdict that ``wanted`` names by number or by cause, "" the first.

    Raises InputError naming the verdicts there are.
    """
    verdicts = report.verdicts
    if not wanted and verdicts:
        return 1
    if wanted.isascii() and wanted.isdigit() and 1 <= int(wanted[:9]) <= len(verdicts):
        return int(wanted[:9])
    for number, verdict in enumerate(verdicts, start=1):
        if verdict.cause.value == wanted.upper():
            return number
    known = ", ".join(f"{n} {one.cause.value}" for n, one in enumerate(verdicts, start=1)) or "none"
    raise InputError(
        f"no verdict {wanted!r} in this report", next_step=f"its verdicts: {known}",
        code="no_verdict_named", text=wanted, known=known,
    )  # fmt: skip


def render_explanation(
    report: RunReport,
    number: int,
    paths: Sequence[str],
    *,
    lang: str = "en",
    width: int = 80,
    color: bool = False,
) -> str:
    """The explanation of verdict ``number``; ``paths`` are what the user gave, for the commands."""
    page = Page(lang=lang, width=width, color=color)
    words, verdict = page.words, report.verdicts[number - 1]
    confidence = words.word("confidence", verdict.confidence.value)
    page.sentence(headline(verdict, report, words), style="bold")
    page.sentence(
        words.text(
            "explain.line", number=number, n_verdicts=len(report.verdicts),
            cause=verdict.cause.value, confidence=confidence, rule=verdict.rule,
        )
    )  # fmt: skip
    if is_hang(verdict) and verdict.first_bad_op is not None:
        page.sentence(
            words.text(
                "explain.boundary", op=op_phrase(verdict.first_bad_op, words),
                ranks=list(verdict.culprits),
            )
        )  # fmt: skip
    _write_chain(page, verdict, paths, number)
    page.heading("told")
    page.bullets([_about("told", verdict, words)])
    page.heading("refuted")
    page.bullets([_about("refuted", verdict, words)])
    _write_evidence(page, verdict, paths, number)
    _write_rest(page, verdict)
    return page.text()


def command(paths: Sequence[str], reference: str) -> str:
    """The command line that opens a reference."""
    return shlex.join(["comminsight", "show", *paths, "--ref", reference])


def _about(group: str, verdict: Verdict, words: Catalogue) -> str:
    code = f"{group}.{verdict.cause.value}"
    return words.text(code if code in words.templates else f"{group}.NOT_DESCRIBED")


def _write_chain(page: Page, verdict: Verdict, paths: Sequence[str], number: int) -> None:
    page.heading("chain")
    page.fields(_chain_rows(verdict.chain, page.words))
    references = dict.fromkeys(_reference(link, number) for link in verdict.chain)
    if any(references):
        page.heading("open")
        page.commands(command(paths, reference) for reference in references if reference)


def _chain_rows(chain: Iterable[ChainLink], words: Catalogue) -> Iterator[tuple[str, str]]:
    for link in chain:
        reference = link.evidence if parse_reference(link.evidence) else ""
        value = chain_value(link, words)
        yield link.level.value, f"{value}  <- {reference}" if reference else value


def _reference(link: ChainLink, number: int) -> str:
    """What opens the level: its reference; a measure stands in the verdict itself."""
    if parse_reference(link.evidence) is not None:
        return link.evidence
    return verdict_ref(number) if link.evidence else ""


def _write_evidence(page: Page, verdict: Verdict, paths: Sequence[str], number: int) -> None:
    if not verdict.evidence:
        return
    page.heading("evidence")
    for place, entry in enumerate(verdict.evidence[:MAX_EVIDENCE], start=1):
        page.bullets([evidence_line(entry, page.words)])
        page.commands(command(paths, one) for one in _references(entry, number, place))
    if (n_more := len(verdict.evidence) - MAX_EVIDENCE) > 0:
        page.bullets([page.words.text("note.more_evidence", n=n_more)])


def _references(entry: Evidence, number: int, place: int) -> Iterator[str]:
    if entry.op_seq > 0 and (op := op_ref_text(entry.comm_id, entry.op_seq, entry.global_rank)):
        yield op
    yield evidence_ref(number, place)


def open_checks(verdict: Verdict) -> list[str]:
    """The kinds of evidence that would decide further and are not there yet; none for a verdict
    that speaks of no ranks."""
    if not (verdict.culprits or verdict.victims):
        return []
    kinds = {entry.kind for entry in verdict.evidence}
    return [name for name, told_by in CHECKS.items() if not kinds & told_by]


def _write_rest(page: Page, verdict: Verdict) -> None:
    words = page.words
    sections = {
        "checks": [
            words.text(f"check.{name}", ranks=list(verdict.culprits or verdict.victims))
            for name in open_checks(verdict)
        ],
        "missing": [words.message(one) for one in verdict.missing],
        "next": [words.message(one) for one in verdict.next_actions],
    }
    for name, lines in sections.items():
        if lines:
            page.heading(name)
            page.bullets(dict.fromkeys(lines))
