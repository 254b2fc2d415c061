"""``comminsight import SRC... --out DIR``: a run directory made of what others recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.typed import call, progress, write_output
from comminsight.model.imported import ImportManifest
from comminsight.model.ranges import MAX_MEMBERS, range_compress
from comminsight.pipeline.import_run import import_run as imported
from comminsight.report.catalogue import Catalogue, catalogue
from comminsight.report.json_form import import_json


def import_run(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="profiler traces, Flight Recorder dumps, logs, answers of ncclras, or folders",
            readable=False,  # the reader says what to do, and that it is bad input
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="the run directory to make; nothing is overwritten")],
    world_size: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_MEMBERS, help="number of ranks, where nothing of the last is at hand"
        ),
    ] = 0,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="what was imported as JSON")] = False,
) -> int:
    """Make a run directory of files that others recorded, so that every other verb takes it."""
    progress(f"reading {', '.join(map(str, paths))}")
    made = imported(paths, out, world_size=world_size)
    if json:
        write_output(import_json(made))
    else:
        write_output("\n".join(_lines(made, out, catalogue(lang.value))))
    return 0


def _lines(made: ImportManifest, out: Path, words: Catalogue) -> list[str]:
    lines = [words.text("import.done", run_id=made.run_id, n_files=len(made.files), path=str(out))]
    for one in made.ranks:
        lines.append(words.text(
            "import.rank", rank=one.global_rank, n_read=one.n_read, n_written=one.n_written,
            n_bad=one.n_bad,
        ))  # fmt: skip
        lines += [
            words.text(f"import.dropped.{name}", n=n) for name, n in sorted(one.dropped.items())
        ]
    written = [one.global_rank for one in made.ranks if one.n_written]
    if len(written) > 1:
        ranks = range_compress(written)
        lines.append(words.text("import.clocks", ranks=ranks))
    if not written:
        lines.append(words.text("import.no_records"))
    return lines


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(import_run, "import", argv)
