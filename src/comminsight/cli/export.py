"""``comminsight export DIR --format parquet|inspector``: the events for other tools."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import EventFormat, Lang
from comminsight.cli.sources import refuse_without_ops
from comminsight.cli.typed import call, progress
from comminsight.pipeline.export import export_inspector, export_parquet
from comminsight.report.catalogue import catalogue
from comminsight.run import open_run


def export(
    run: Annotated[Path, typer.Argument(help="run directory", readable=False)],
    *,
    form: Annotated[EventFormat, typer.Option("--format", help="form of the events")],
    out: Annotated[
        Path | None, typer.Option(help="folder to write to (default: events/ in the run)")
    ] = None,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
) -> int:
    """Write every finished op of the run as Parquet tables or as NCCL Inspector JSON lines."""
    progress(f"reading {run}")
    opened = open_run(run)
    refuse_without_ops(run)
    target = out or run / "events" / form.value
    words = catalogue(lang.value)
    if form is EventFormat.PARQUET:
        written = export_parquet(opened.sessions, opened.trace, target, opened.metadata())
    else:
        written = export_inspector(opened.sessions, opened.trace, target)
    sys.stdout.write("".join(f"{path}\n" for path in written.paths))
    for reason, count in sorted(written.skipped.items()):
        if count:
            sys.stderr.write(f"{count} x {words.text(reason)}\n")
    return 0


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(export, "export", argv)
