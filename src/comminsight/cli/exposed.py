"""``comminsight exposed PATH...``: where the communication time goes, and what of it is exposed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.plots import plot_drawer, write_plot
from comminsight.cli.sources import refuse_without_ops, split_runs
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.errors import UsageError
from comminsight.model.exposed import ExposedReport
from comminsight.pipeline.evidence_files import FileForm
from comminsight.pipeline.exposed import exposed_in_files, exposed_in_run, exposed_in_traces
from comminsight.pipeline.import_run import evidence_of, read_import
from comminsight.report.exposed_text import render_exposed
from comminsight.report.json_form import exposed_json
from comminsight.run import open_run

PLOT = "comminsight.report.exposed_plot"


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
    plot: Annotated[
        Path | None, typer.Option(help="also draw it into this new .svg or .png file")
    ] = None,
) -> int:
    """Say which communication no compute hides, by op, rank and step, and what to do about it."""
    drawn = plot_drawer(plot, PLOT) if plot is not None else None
    progress(f"reading {', '.join(map(str, paths))}")
    runs, files = split_runs(paths)
    if runs and files:
        raise UsageError("a run directory and other files", next_step="give one or the other")
    made = _of_run(runs[0]) if runs else exposed_in_files(files)
    if plot is not None and drawn is not None:
        write_plot(plot, drawn(made, form=plot.suffix[1:]))
    if json:
        write_output(exposed_json(made))
    else:
        write_output(render_exposed(made, lang=lang.value, width=terminal_width()))
    return 0


def _of_run(root: Path) -> ExposedReport:
    """An imported run still has the traces that it was made of: they hold the compute too. Records
    of the Inspector are evidence of that form, and hold ops alone."""
    manifest = read_import(root)
    if manifest is not None and any(one.form == FileForm.TRACE for one in manifest.files):
        found = exposed_in_traces(evidence_of(root, manifest))
        if found is not None:
            return found
    refuse_without_ops(root)
    return exposed_in_run(open_run(root).trace)


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(exposed, "exposed", argv)
