"""``comminsight exposed PATH...``: where the communication time goes, and what of it is exposed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.sources import split_runs
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.errors import UsageError
from comminsight.pipeline.exposed import exposed_in_files, exposed_in_run
from comminsight.report.exposed_text import render_exposed
from comminsight.report.json_form import exposed_json
from comminsight.run import open_run


def exposed(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="traces of a profiler, or folders of them; or one run directory", readable=False
        ),
    ],
    *,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="all of it as JSON")] = False,
) -> int:
    """Say which communication no compute hides, by op, rank and step, and what to do about it."""
    progress(f"reading {', '.join(map(str, paths))}")
    runs, files = split_runs(paths)
    if runs and files:
        raise UsageError("a run directory and other files", next_step="give one or the other")
    made = exposed_in_run(open_run(runs[0]).trace) if runs else exposed_in_files(files)
    if json:
        write_output(exposed_json(made))
    else:
        write_output(render_exposed(made, lang=lang.value, width=terminal_width()))
    return 0


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(exposed, "exposed", argv)
