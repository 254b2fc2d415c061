"""``comminsight explain PATH... [--verdict N|CAUSE]``: one verdict, level by level."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.sources import judged
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.model.ranges import MAX_MEMBERS
from comminsight.model.verdict import Cause
from comminsight.report.explain_text import find_verdict, render_explanation
from comminsight.report.json_form import verdict_json
from comminsight.report.page import wants_color


def explain(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="a run directory, an incident file, or what `diagnose` takes; then, if not the "
            "first, the verdict: its number or its cause"
        ),
    ],
    *,
    verdict: Annotated[
        str, typer.Option(help="the verdict: its number in the report, or its cause")
    ] = "",
    world_size: Annotated[
        int, typer.Option(min=0, max=MAX_MEMBERS, help="number of ranks, where nothing tells it")
    ] = 0,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="the verdict as JSON")] = False,
    templates: Annotated[
        Path | None, typer.Option(help="folder with templates of your own")
    ] = None,
) -> int:
    """Explain one verdict: its causal chain with the command that opens each reference, how it was
    told, what would refute it, and which checks are still open."""
    places, wanted = split_wanted(paths, verdict)
    progress(f"reading {', '.join(places)}")
    given = [Path(place) for place in places]
    folders = [templates] if templates else []
    with judged(given, world_size=world_size, template_folders=folders) as found:
        number = find_verdict(found.report, wanted)
        if json:
            write_output(verdict_json(found.report, number))
            return 0
        text = render_explanation(
            found.report, number, places, lang=lang.value, width=terminal_width(),
            color=wants_color(sys.stdout, os.environ),
        )  # fmt: skip
    write_output(text)
    return 0


def split_wanted(words: Sequence[str], verdict: str) -> tuple[list[str], str]:
    """(paths, verdict): the last word is the verdict where it reads as one and is no file."""
    *places, last = words
    is_verdict = last.isdigit() or last.upper() in Cause.__members__
    if verdict or not places or not is_verdict or Path(last).exists():
        return list(words), verdict
    return places, last


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(explain, "explain", argv)
