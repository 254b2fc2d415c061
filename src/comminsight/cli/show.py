"""``comminsight show DIR --rank R --step N``: the ops of one rank in one step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.report.json_form import ops_json
from comminsight.report.steps_text import render_ops
from comminsight.run import open_run


def show(
    run: Annotated[Path, typer.Argument(help="run directory")],
    *,
    rank: Annotated[int, typer.Option(help="global rank")],
    step: Annotated[int, typer.Option(help="step, as `comminsight steps` numbers it")],
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="the ops as JSON")] = False,
    templates: Annotated[
        Path | None, typer.Option(help="folder with templates of your own")
    ] = None,
) -> int:
    """List the ops of one rank in one step: when each began, how long, and whom it waited for."""
    progress(f"reading {run}")
    opened = open_run(run, template_folders=[templates] if templates else [])
    view = opened.step_ops(global_rank=rank, step=step)
    if json:
        write_output(ops_json(view))
    else:
        write_output(render_ops(view, lang=lang.value, width=terminal_width()))
    return 0


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(show, "show", argv)
