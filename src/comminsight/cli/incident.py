"""``comminsight incident PATH... --out FILE.tar``: what a colleague elsewhere needs, masked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.sources import Judged, judged
from comminsight.cli.typed import call, progress, write_output
from comminsight.format.incident import IncidentManifest
from comminsight.model.ranges import MAX_MEMBERS
from comminsight.pipeline.incident import RecordedRun, make_incident, without_names
from comminsight.report.catalogue import Catalogue, catalogue
from comminsight.report.numbers import size


def incident(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="a run directory, and logs or dumps of the same job, or these alone",
            readable=False,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="the file to write")],
    keep_names: Annotated[
        bool, typer.Option("--keep-names", help="mask no host, user, address or path")
    ] = False,
    world_size: Annotated[
        int, typer.Option(min=0, max=MAX_MEMBERS, help="number of ranks, where nothing tells it")
    ] = 0,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
) -> int:
    """Write one file with which a colleague elsewhere can judge the job again, without its names.

    The file is read back and judged: stdout says whether it gives the same verdicts.
    """
    progress(f"reading {', '.join(map(str, paths))}")
    with judged(paths, world_size=world_size) as found:
        manifest = make_incident(
            out, found.report, run=_recorded(found), files=found.files, keep_names=keep_names
        )
        before = without_names(found.report)
    progress(f"judging {out} again")
    with judged([out], world_size=world_size) as again:
        is_same = without_names(again.report) == before
    words = catalogue(lang.value)
    write_output("\n".join(_told(out, manifest, words, is_same=is_same)))
    return 0


def _recorded(found: Judged) -> RecordedRun | None:
    run = found.run
    if run is None:
        return None
    return RecordedRun(run.paths, run.manifests, run.loaded, run.facts.end)


def _told(out: Path, manifest: IncidentManifest, words: Catalogue, *, is_same: bool) -> list[str]:
    """What is in the file, what was masked, what was left out, and whether it says the same."""
    n_bytes = sum(member.size_bytes for member in manifest.members)
    lines = [
        words.text("incident.written", path=str(out), n=len(manifest.members), size=size(n_bytes))
    ]
    if manifest.is_masked:
        lines.append(words.text("incident.masked", **manifest.masked))
    else:
        lines.append(words.text("incident.kept"))
    lines += [
        words.text(f"incident.left_{reason}", n=n)
        for reason, n in sorted(manifest.left_out.items())
    ]
    causes = ", ".join(manifest.verdicts) or "-"
    lines.append(words.text("incident.same" if is_same else "incident.other", causes=causes))
    return lines


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(incident, "incident", argv)
