"""``comminsight show DIR``: the ops of one rank in one step, or one op layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.errors import UsageError
from comminsight.report.json_form import op_json, ops_json
from comminsight.report.op_text import render_op
from comminsight.report.steps_text import render_ops
from comminsight.run import open_run


def show(
    run: Annotated[Path, typer.Argument(help="run directory")],
    *,
    rank: Annotated[int | None, typer.Option(help="global rank")] = None,
    step: Annotated[
        int | None, typer.Option(help="step, as `comminsight steps` numbers it; needs --rank")
    ] = None,
    op: Annotated[
        str, typer.Option(help="one op as COMM:SEQ: communicator (name, #number, hash) and op_seq")
    ] = "",
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="the answer as JSON")] = False,
    templates: Annotated[
        Path | None, typer.Option(help="folder with templates of your own")
    ] = None,
) -> int:
    """List the ops of one rank in one step: when each began, how long, and whom it waited for.

    With --op, show one op from its call over task and kernel to the network, on all ranks or one.
    """
    if bool(op) == (step is not None) or (step is not None and rank is None):
        raise UsageError(
            "say which ops", next_step="give --rank R --step N, or --op COMM:SEQ", code="which_ops"
        )
    progress(f"reading {run}")
    opened = open_run(run, template_folders=[templates] if templates else [])
    width = terminal_width()
    if step is not None and rank is not None:
        view = opened.step_ops(global_rank=rank, step=step)
        shown = ops_json(view) if json else render_ops(view, lang=lang.value, width=width)
    else:
        story = opened.op_stories(op, global_rank=rank)
        shown = op_json(story) if json else render_op(story, lang=lang.value, width=width)
    write_output(shown)
    return 0


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(show, "show", argv)
