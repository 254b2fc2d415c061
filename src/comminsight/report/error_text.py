"""What an error says, and what to do next, in the language of its reader."""

from __future__ import annotations

from comminsight.errors import CommInsightError
from comminsight.report.catalogue import catalogue


def error_in(error: CommInsightError, lang: str) -> str:
    """The sentence of the error's code behind its path; the English where it has none."""
    words = catalogue(lang)
    code = f"error.{error.code}"
    if code not in words.templates:
        return str(error)
    said = words.text(code, **error.params)
    return f"{error.path}: {said}" if error.path else said


def next_in(error: CommInsightError, lang: str) -> str:
    """The line of what to do next, "" for nothing."""
    words = catalogue(lang)
    code = f"next.{error.code}"
    step = words.text(code, **error.params) if code in words.templates else error.next_step
    return words.text("clause.next", step=step) if step else ""
