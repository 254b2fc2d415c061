"""``comminsight doctor``: whether this machine and this environment can record, and what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.errors import ExitCode
from comminsight.launch.environment import own_folder
from comminsight.launch.filesystem import is_network
from comminsight.launch.plugin import LIBRARY_NAME, PLUGIN_VARIABLE, foreign_plugin
from comminsight.model.checkup import Checkup, Standing
from comminsight.pipeline.load import live_box_dir
from comminsight.pipeline.native_folder import native_folder
from comminsight.probe.checks import examine
from comminsight.probe.facts import Places, gather
from comminsight.report.checkup_text import render_checkup
from comminsight.report.json_form import checkup_json
from comminsight.report.page import wants_color


class Tolerance(StrEnum):
    """Which results turn into exit code 10."""

    NEVER = "never"
    PROBLEM = "problem"
    ANY = "any"


INTOLERABLE = {
    Tolerance.NEVER: frozenset[Standing](),
    Tolerance.PROBLEM: frozenset({Standing.PROBLEM}),
    Tolerance.ANY: frozenset({Standing.PROBLEM, Standing.UNKNOWN}),
}


def places(python: str, spool: Path | None) -> Places:
    """Where a job started from this environment would record."""
    own = own_folder()
    given = os.environ.get("COMMINSIGHT_SPOOL", "")
    chosen = spool or (Path(given) if given else None)
    return Places(
        recorder_path=native_folder() / LIBRARY_NAME,
        box_folder=live_box_dir(),
        spool=chosen or own / "spool",
        private_folder=None if chosen else own,
        python=python,
        plugin=os.environ.get(PLUGIN_VARIABLE, ""),
        is_plugin_foreign=bool(foreign_plugin(os.environ)),
        is_network=is_network,
    )


def exit_code(checkup: Checkup, fail_on: Tolerance) -> int:
    """0, or 10 when a result is not to be tolerated."""
    is_found = any(result.standing in INTOLERABLE[fail_on] for result in checkup.results)
    return int(ExitCode.FINDING if is_found else ExitCode.OK)


def doctor(
    *,
    python: Annotated[str, typer.Option(help="the Python that trains")] = sys.executable,
    spool: Annotated[Path | None, typer.Option(help="folder that the job will record to")] = None,
    json: Annotated[bool, typer.Option("--json", help="the results as JSON")] = False,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    fail_on: Annotated[Tolerance, typer.Option(help="results that exit with 10")] = Tolerance.NEVER,
) -> int:
    """Check library, folders, permissions and versions; say what is wrong and what to do."""
    progress("looking at this machine, loading the plugin")
    checkup = examine(gather(places(python, spool), os.environ))
    if json:
        write_output(checkup_json(checkup))
    else:
        color = wants_color(sys.stdout, os.environ)
        text = render_checkup(checkup, lang=lang.value, width=terminal_width(), color=color)
        write_output(text)
    return exit_code(checkup, fail_on)


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(doctor, "doctor", argv)
