"""``comminsight calibrate preview|apply|clear|history DIR``: the step numbers of a run."""

from __future__ import annotations

import os
import pwd
import socket
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.model.calibration import CalibrationHistory, CalibrationView
from comminsight.pipeline.calibration import Act
from comminsight.report.calibration_text import render_calibration, render_calibration_history
from comminsight.report.json_form import calibration_json
from comminsight.run import Run, open_run


class Action(StrEnum):
    """What to do with the calibration of a run."""

    PREVIEW = "preview"
    APPLY = "apply"
    CLEAR = "clear"
    HISTORY = "history"


def calibrate(
    action: Annotated[Action, typer.Argument(help="what to do")],
    run: Annotated[Path, typer.Argument(help="run directory", readable=False)],
    *,
    reason: Annotated[str, typer.Option(help="why, for the history (with apply and clear)")] = "",
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="the answer as JSON")] = False,
    templates: Annotated[
        Path | None, typer.Option(help="folder with templates of your own")
    ] = None,
) -> int:
    """Give the steps of all ranks common numbers, by the ops that their ranks share.

    preview shows the correction and changes nothing, apply archives it and makes every reader show
    it, clear shows raw numbers again, history says who did what when. Raw steps never change.
    """
    progress(f"reading {run}")
    opened = open_run(run, template_folders=[templates] if templates else [])
    done = _done(opened, action, reason)
    if json:
        write_output(calibration_json(done))
    elif isinstance(done, CalibrationView):
        write_output(
            render_calibration(done, run=str(run), lang=lang.value, width=terminal_width())
        )
    else:
        write_output(
            render_calibration_history(done, run=str(run), lang=lang.value, width=terminal_width())
        )
    return 0


def _done(opened: Run, action: Action, reason: str) -> CalibrationView | CalibrationHistory:
    calibration = opened.calibration
    if action is Action.PREVIEW:
        return calibration.preview()
    if action is Action.HISTORY:
        return calibration.history()
    act = Act(who=who(), at_real_ns=time.time_ns(), reason=reason)
    return calibration.apply(act) if action is Action.APPLY else calibration.clear(act)


def who() -> str:
    """``user@host`` of this process; the number of a user without a name."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(calibrate, "calibrate", argv)
