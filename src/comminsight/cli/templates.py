"""``comminsight templates DIR``: why which template was taken, and whether its anchor holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.pipeline.template_view import ANY_RANK
from comminsight.report.json_form import template_view_json
from comminsight.report.templates_text import render_template_view
from comminsight.run import open_run


def templates(
    run: Annotated[Path, typer.Argument(help="run directory", readable=False)],
    *,
    rank: Annotated[
        int, typer.Option(help="global rank whose scores are shown; default: one without steps")
    ] = ANY_RANK,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="the answer as JSON")] = False,
    folder: Annotated[
        Path | None, typer.Option("--templates", help="folder with templates of your own")
    ] = None,
) -> int:
    """Say which step template won on each rank, how every template fared, and whether the anchor
    of the winner means the same, stands still and advances equally on all ranks."""
    progress(f"reading {run}")
    opened = open_run(run, template_folders=[folder] if folder else [])
    view = opened.template_view(global_rank=rank)
    if json:
        write_output(template_view_json(view))
    else:
        write_output(
            render_template_view(view, run=str(run), lang=lang.value, width=terminal_width())
        )
    return 0


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(templates, "templates", argv)
