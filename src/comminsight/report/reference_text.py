"""What a reference of a verdict leads to, as far as the report itself tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from comminsight.errors import InputError
from comminsight.model.ranges import range_compress
from comminsight.model.reference import Reference, RefKind
from comminsight.model.report import RankRow, RunReport
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Evidence, Verdict
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Page
from comminsight.report.text import fact_rows
from comminsight.report.verdict_text import (
    evidence_line,
    headline,
    measure_rows,
    write_evidence,
)


def render_reference(
    report: RunReport, reference: Reference, *, lang: str = "en", width: int = 80
) -> str:
    """The part of the report that the reference names.

    Raises InputError where the report has no such.
    """
    page = Page(lang=lang, width=width, color=False)
    match reference.kind:
        case RefKind.RUN:
            page.heading("run")
            page.fields(fact_rows(report, page.words))
        case RefKind.COMM:
            _write_communicator(page, _communicator(report, reference.comm_id))
        case RefKind.VERDICT | RefKind.EVIDENCE:
            _write_verdict(page, report, reference)
        case RefKind.RANK | RefKind.STEP | RefKind.OP:
            for rank in reference.ranks:
                _write_rank(page, report, reference, rank)
    return page.text()


def _communicator(report: RunReport, comm_id: int) -> Communicator:
    for one in report.communicators:
        if one.comm_id == comm_id:
            return one
    raise _nothing(f"comm:{comm_id}", (f"comm:{one.comm_id}" for one in report.communicators))


def _write_communicator(page: Page, one: Communicator) -> None:
    page.sentence(one.label, style="bold")
    page.fields(
        (
            ("role", one.role.value),
            ("communicator", f"#{one.comm_id} {one.comm_hash:016x} {one.name} {one.desc}".strip()),
            ("ranks", f"{one.comm_size}: {range_compress(m for m in one.members if m >= 0)}"),
        )
    )


def _write_verdict(page: Page, report: RunReport, reference: Reference) -> None:
    verdict = _verdict(report, reference.verdict)
    if reference.kind is RefKind.EVIDENCE:
        if not 1 <= reference.evidence <= len(verdict.evidence):
            known = (f"evidence:{reference.verdict}.{n + 1}" for n in range(len(verdict.evidence)))
            raise _nothing(f"evidence:{reference.verdict}.{reference.evidence}", known)
        _write_whole(page, verdict.evidence[reference.evidence - 1])
        return
    page.sentence(headline(verdict, report, page.words), style="bold")
    page.fields(measure_rows(verdict))
    write_evidence(page, verdict.evidence)


def _verdict(report: RunReport, number: int) -> Verdict:
    if 1 <= number <= len(report.verdicts):
        return report.verdicts[number - 1]
    raise _nothing(f"verdict:{number}", (f"verdict:{n + 1}" for n in range(len(report.verdicts))))


def _write_whole(page: Page, entry: Evidence) -> None:
    """One evidence with its text to the last line."""
    page.sentence(evidence_line(entry, page.words))
    page.commands(entry.text.splitlines())


def _write_rank(page: Page, report: RunReport, reference: Reference, rank: int) -> None:
    """What the report knows of the rank, or of one op on it."""
    words = page.words
    row = next((one for one in report.ranks if one.global_rank == rank), None)
    page.sentence(words.text("place.rank", value=rank), style="bold")
    if row is not None:
        page.fields(_rank_rows(row))
    said = [
        entry for verdict in report.verdicts for entry in verdict.evidence
        if _is_about(entry, reference, rank)
    ]  # fmt: skip
    write_evidence(page, said)
    if row is None and not said:
        page.bullets(_named_in(report, rank, words))


def _is_about(entry: Evidence, reference: Reference, rank: int) -> bool:
    ranks = entry.message.params.get("ranks", ())
    listed = isinstance(ranks, list | tuple) and rank in ranks
    if reference.kind is RefKind.OP and entry.comm_id != reference.comm_id:
        return False
    return entry.global_rank == rank or listed


def _rank_rows(row: RankRow) -> Iterator[tuple[str, str]]:
    yield "node", row.host
    yield "place", row.coords
    yield "device", row.device
    yield "steps", numbers.count(row.n_steps)


def _named_in(report: RunReport, rank: int, words: Catalogue) -> Iterator[str]:
    """Verdicts that name the rank: all that is known of it here."""
    named = [
        headline(one, report, words)
        for one in report.verdicts
        if rank in {*one.culprits, *one.victims}
    ]
    if not named:
        raise _nothing(f"rank:{rank}", (f"rank:{one.global_rank}" for one in report.ranks))
    yield from named


def _nothing(reference: str, known: Iterable[str]) -> InputError:
    names = [*known]
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "none"
    return InputError(
        f"no {reference} in this report", next_step=f"there are: {shown}",
        code="no_reference", text=reference, known=shown,
    )  # fmt: skip
