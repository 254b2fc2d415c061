"""``comminsight fit PATH...``: startup and rate of each collective, by its size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.analysis.bench_rows import bench_bandwidth
from comminsight.cli.choices import Lang
from comminsight.cli.sources import split_runs
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.model.bandwidth import BandwidthRow
from comminsight.pipeline.bench_files import bench_records
from comminsight.pipeline.cost_fits import cost_report
from comminsight.pipeline.job_evidence import gather
from comminsight.probe.bench_launch import read_record
from comminsight.report.fit_text import render_fit
from comminsight.report.json_form import cost_json
from comminsight.run import open_run


def fit(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="run directories, results of nccl-tests, records of `comminsight bench`, folders "
            "of them; the first is what the others are held against",
            readable=False,
        ),
    ],
    *,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="all of it as JSON")] = False,
) -> int:
    """Fit startup + bytes / rate to each collective: where algorithms cross, what became worse."""
    progress(f"reading {', '.join(map(str, paths))}")
    given = [(str(path) if len(paths) > 1 else "", _rows(path)) for path in paths]
    report = cost_report(given)
    if json:
        write_output(cost_json(report))
    else:
        write_output(render_fit(report, lang=lang.value, width=terminal_width()))
    return 0


def _rows(path: Path) -> Sequence[BandwidthRow]:
    records = bench_records(path)
    if records:
        return [row for record in records for row in bench_bandwidth(read_record(record))]
    runs, files = split_runs([path])
    return open_run(runs[0]).bandwidth() if runs else gather(files).job.bandwidth


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(fit, "fit", argv)
