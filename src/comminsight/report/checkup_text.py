"""What ``comminsight doctor`` found, as text: problems first, each with what to do."""

from __future__ import annotations

from comminsight.model.checkup import CheckResult, Checkup, Standing
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Page

SECTIONS = (
    ("problems", Standing.PROBLEM),
    ("unanswered", Standing.UNKNOWN),
    ("fine", Standing.OK),
)


def render_checkup(
    checkup: Checkup, *, lang: str = "en", width: int = 80, color: bool = False
) -> str:
    """The whole answer. Raises UsageError for an unknown language."""
    page = Page(lang=lang, width=width, color=color)
    page.sentence(headline(checkup, page.words), style="bold")
    for heading, standing in SECTIONS:
        if results := checkup.having(standing):
            page.heading(heading)
            page.bullets(sentence(result, page.words) for result in results)
    return page.text()


def headline(checkup: Checkup, words: Catalogue) -> str:
    """How it stands, in one sentence."""
    n_problems = len(checkup.having(Standing.PROBLEM))
    n_unknown = len(checkup.having(Standing.UNKNOWN))
    first = words.text("doctor.problems", n=n_problems) if n_problems else ""
    second = words.text("doctor.unknown", n=n_unknown) if n_unknown else ""
    said = [text for text in (first or words.text("doctor.healthy"), second) if text]
    return words.text("clause.end", sentence=words.text("clause.join").join(said))


def sentence(result: CheckResult, words: Catalogue) -> str:
    """What was found, and what to do where something can be done."""
    found = words.message(result.found)
    if result.remedy is None:
        return found
    return words.text("doctor.with_remedy", found=found, remedy=words.message(result.remedy))
