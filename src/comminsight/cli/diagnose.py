"""``comminsight diagnose PATH...``: why a job hung or failed, from whatever it left behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import FailOn, Lang
from comminsight.cli.report import exit_code, show_report
from comminsight.cli.sources import judged
from comminsight.cli.typed import call, progress
from comminsight.model.ranges import MAX_MEMBERS


def diagnose(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="logs, Flight Recorder dumps, answers of ncclras, profiler traces, tables of "
            "nccl-tests and of ports, a run directory, an incident file, or folders",
            readable=False,  # the reader says what to do, and that it is bad input
        ),
    ],
    *,
    world_size: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_MEMBERS, help="number of ranks, where nothing of the last is at hand"
        ),
    ] = 0,
    baseline: Annotated[
        list[Path] | None,
        typer.Option(help="files of another run of the same job: what has changed since"),
    ] = None,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="the report as JSON")] = False,
    fail_on: Annotated[
        FailOn, typer.Option(help="exit 10 on any finding, or only on one of high confidence")
    ] = FailOn.NEVER,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit 4 when ranks or records are missing")
    ] = False,
) -> int:
    """Say why a job hung or failed, who caused it, and what is not known, from what it left."""
    progress(f"reading {', '.join(map(str, paths))}")
    with judged(paths, world_size=world_size, baseline=baseline or ()) as found:
        made = found.report
    show_report(made, lang=lang, is_json=json)
    return exit_code(made, fail_on=fail_on, is_strict=strict)


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(diagnose, "diagnose", argv)
