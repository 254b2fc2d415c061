"""``comminsight rebuild DIR``: the steps again, from inspector_logs alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.typed import call, progress
from comminsight.run import open_run


def rebuild(
    run: Annotated[Path, typer.Argument(help="run directory")],
    *,
    templates: Annotated[
        Path | None, typer.Option(help="folder with templates of your own")
    ] = None,
) -> int:
    """Rebuild every rank's steps from its raw records and write them into steps/ of the run."""
    progress(f"reading {run}")
    opened = open_run(run, template_folders=[templates] if templates else [], is_segments_only=True)
    written = opened.write_steps()
    steps = sum(len(own) for own in opened.steps.values())
    sys.stdout.write(f"{steps} steps of {len(opened.steps)} sessions: {written}\n")
    return 0


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(rebuild, "rebuild", argv)
