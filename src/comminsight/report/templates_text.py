"""Text of ``comminsight templates``: choices of all ranks, scores of one, checks of the anchor."""

from __future__ import annotations

from comminsight.model.template_view import AnchorCheck, Outcome, TemplateChoice, TemplateView
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Page
from comminsight.report.steps_text import render_template_scores


def render_template_view(
    view: TemplateView, *, run: str = "", lang: str = "en", width: int = 80, color: bool = False
) -> str:
    """The page in one language."""
    page = Page(lang=lang, width=width, color=color)
    words = page.words
    page.sentence(words.text("heading.template_choice", run=run), style="bold cyan")
    page.bullets(_choice(choice, words) for choice in view.choices)
    page.heading("template_scores", rank=view.global_rank)
    scores = render_template_scores(view.scores, lang=lang, width=width, color=color)
    chosen = next((score.template for score in view.scores if score.is_chosen), "")
    checks = Page(lang=lang, width=width, color=color)
    if view.scores:
        checks.bullets([words.text("template.scored_on", n=view.scores[0].n_ops)])
    if chosen:
        checks.bullets([words.text("template.won", template=chosen)])
    if view.checks:
        checks.heading("anchor_checks", template=view.checked)
        checks.bullets(_check(check, words) for check in view.checks)
    return page.text() + scores + checks.text()


def _choice(choice: TemplateChoice, words: Catalogue) -> str:
    if not choice.template:
        reasons = ", ".join(words.word("broken", reason) for reason in choice.reasons)
        none = words.text("template.none", ranks=choice.ranks)
        return f"{none} ({reasons})" if reasons else none
    return words.text(
        "template.chosen", template=choice.template, version=choice.version,
        file_version=choice.file_version, ranks=choice.ranks, n=choice.n_steps,
    )  # fmt: skip


def _check(check: AnchorCheck, words: Catalogue) -> str:
    outcome = words.word("outcome", check.outcome.value)
    rule = words.word("rule", check.rule.value)
    evidence = words.message(check.evidence)
    if check.outcome is Outcome.FAILS:
        outcome = outcome.upper()
    return words.text("anchor.check", rule=rule, outcome=outcome, evidence=evidence)
