"""``comminsight report DIR``: the verdicts of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Clock, FailOn, Lang
from comminsight.cli.sources import at_path, is_judged_by_records, judged
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.errors import ExitCode
from comminsight.model.report import RunReport
from comminsight.model.verdict import UNREMARKABLE, Cause, Confidence
from comminsight.pipeline.incident_open import opened
from comminsight.pipeline.ras_store import read_ras
from comminsight.report.json_form import report_json
from comminsight.report.page import wants_color
from comminsight.report.text import render_report
from comminsight.run import open_run

NO_FINDING = UNREMARKABLE | {Cause.HEALTHY_IDLE, Cause.DATA_INCOMPLETE}


def report(
    run: Annotated[Path, typer.Argument(help="run directory, or an incident file", readable=False)],
    *,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="the report as JSON")] = False,
    clock: Annotated[Clock, typer.Option(help="clock that waits are measured on")] = Clock.ALIGNED,
    templates: Annotated[
        Path | None, typer.Option(help="folder with templates of your own")
    ] = None,
    ras: Annotated[
        list[Path] | None,
        typer.Option(
            help="an answer of NCCL's RAS (what ncclras printed, JSON or text) as evidence"
        ),
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option(help="exit 10 on any finding, or only on one of high confidence")
    ] = FailOn.NEVER,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit 4 when ranks or records are missing")
    ] = False,
) -> int:
    """Say what went wrong in a run, who caused it, who suffered, and what is not known."""
    answers = [read_ras(path) for path in ras or ()]
    progress(f"reading {run}")
    folders = [templates] if templates else []
    with opened(run) as places:
        if is_judged_by_records(places):
            made = open_run(places[0], template_folders=folders).report(
                clock=clock.value, ras=answers
            )
            made = at_path(made, [run])
        else:  # an incident of files, a run with files beside it, or an imported one
            with judged([run, *(ras or ())], template_folders=folders) as found:
                made = found.report
    show_report(made, lang=lang, is_json=json)
    return exit_code(made, fail_on=fail_on, is_strict=strict)


def show_report(made: RunReport, *, lang: Lang, is_json: bool) -> None:
    """Print a report, as people read it or as JSON."""
    if is_json:
        write_output(report_json(made))
    else:
        color = wants_color(sys.stdout, os.environ)
        write_output(render_report(made, lang=lang.value, width=terminal_width(), color=color))


def exit_code(made: RunReport, *, fail_on: FailOn, is_strict: bool) -> int:
    """10 and 4 only for those who asked for them."""
    found = [v for v in made.verdicts if v.cause not in NO_FINDING]
    if fail_on is FailOn.HIGH:
        found = [v for v in found if v.confidence is Confidence.HIGH]
    if found and fail_on is not FailOn.NEVER:
        return int(ExitCode.FINDING)
    if is_strict and (made.coverage.ranks_missing or made.coverage.records_lost):
        return int(ExitCode.PARTIAL)
    return int(ExitCode.OK)


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(report, "report", argv)
