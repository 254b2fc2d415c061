"""``comminsight steps DIR``: the training steps of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.sources import refuse_without_ops
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.report.calibration_text import render_step_numbers
from comminsight.report.json_form import steps_json
from comminsight.report.steps_text import render_step_changes, render_steps
from comminsight.run import open_run


def steps(
    run: Annotated[Path, typer.Argument(help="run directory", readable=False)],
    *,
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="the steps as JSON")] = False,
    templates: Annotated[
        Path | None, typer.Option(help="folder with templates of your own")
    ] = None,
) -> int:
    """List the steps: how long each took and in which phases, over how many ranks, what of them was
    seen, and what changed on the way."""
    progress(f"reading {run}")
    opened = open_run(run, template_folders=[templates] if templates else [])
    refuse_without_ops(run)
    rows, coverage = opened.step_rows(), opened.coverage()
    scores = () if rows else opened.template_scores()
    view, notes = opened.calibration.state.view, opened.calibration_notes()
    changes = opened.step_changes()
    if json:
        document = steps_json(
            opened.facts.run_id, rows, coverage, scores,
            step_view=view.value, notes=notes, changes=changes,
        )  # fmt: skip
        write_output(document)
        return 0
    language, width = lang.value, terminal_width()
    text = render_steps(
        rows, coverage, run=str(run), n_nodes=len(opened.facts.hosts),
        seen=opened.roles_and_ops(), scores=scores, lang=language, width=width,
    )  # fmt: skip
    text += render_step_changes(changes, lang=language, width=width)
    write_output(text + render_step_numbers(view.value, notes, lang=language, width=width))
    return 0


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(steps, "steps", argv)
