"""``comminsight whatif DIR``: what a step would gain if a part behaved like its peers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.sources import refuse_without_ops
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.pipeline.what_if import what_if
from comminsight.report.json_form import what_if_json
from comminsight.report.whatif_text import render_what_if
from comminsight.run import open_run


def whatif(
    run: Annotated[Path, typer.Argument(help="run directory", readable=False)],
    *,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="the gains as JSON")] = False,
    templates: Annotated[
        Path | None, typer.Option(help="folder with templates of your own")
    ] = None,
) -> int:
    """Say how much faster a step would be if a rank, node, stage, link or kind of op behaved like
    its peers: expected, at least, at most, and what is not known."""
    progress(f"reading {run}")
    opened = open_run(run, template_folders=[templates] if templates else [])
    refuse_without_ops(run)
    found = what_if(
        opened.trace, opened.aligned_steps, opened.coverage(), run_id=opened.facts.run_id
    )
    if json:
        write_output(what_if_json(found))
        return 0
    text = render_what_if(
        found, run=str(run), n_nodes=len(opened.facts.hosts), lang=lang.value,
        width=terminal_width(),
    )  # fmt: skip
    write_output(text)
    return 0


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(whatif, "whatif", argv)
