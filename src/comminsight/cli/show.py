"""``comminsight show DIR``: the ops of one rank in one step, its pairs, or one op by layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.sources import judged, refuse_without_ops
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.errors import UsageError
from comminsight.model.reference import RefKind, parse_reference
from comminsight.pipeline.incident_open import opened
from comminsight.pipeline.pair_view import rank_pairs
from comminsight.report.json_form import op_json, ops_json, pairs_json
from comminsight.report.op_text import render_op
from comminsight.report.pairs_text import render_pairs
from comminsight.report.reference_text import render_reference
from comminsight.report.steps_text import render_ops
from comminsight.run import Run, open_run


def show(  # noqa: PLR0913 - one for each option
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="run directory, or an incident file; with --ref what `diagnose` takes",
            readable=False,
        ),
    ],
    *,
    rank: Annotated[int | None, typer.Option(help="global rank")] = None,
    step: Annotated[
        int | None, typer.Option(help="step, as `comminsight steps` numbers it; needs --rank")
    ] = None,
    op: Annotated[
        str, typer.Option(help="one op as COMM:SEQ: communicator (name, #number, hash) and op_seq")
    ] = "",
    pairs: Annotated[
        bool, typer.Option("--pairs", help="whom the rank made wait and who made it wait")
    ] = False,
    ref: Annotated[
        str, typer.Option(help="a reference of a verdict, as `comminsight explain` prints it")
    ] = "",
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
    json: Annotated[bool, typer.Option("--json", help="the answer as JSON")] = False,
    templates: Annotated[
        Path | None, typer.Option(help="folder with templates of your own")
    ] = None,
) -> int:
    """List the ops of one rank in one step: when each began, how long, and whom it waited for.

    With --pairs, show whom the rank made wait and who made it wait, in one step or in all.
    With --op, show one op from its call over task and kernel to the network, on all ranks or one.
    With --ref, open what a verdict names as its evidence.
    """
    folders = [templates] if templates else []
    if ref:
        write_output(_referenced(paths, ref, folders, lang))
        return 0
    _check_asked(rank, step, op, is_pairs=pairs)
    if len(paths) != 1:
        raise UsageError("give one run", next_step="several paths go with --ref")
    progress(f"reading {paths[0]}")
    with opened(paths[0]) as (place, *_):
        run = open_run(place, template_folders=folders)
        refuse_without_ops(place)
        if pairs and rank is not None:
            write_output(_pairs(run, rank, step, lang, is_json=json))
        else:
            write_output(_shown(run, rank, step, op, lang, is_json=json))
    return 0


def _check_asked(rank: int | None, step: int | None, op: str, *, is_pairs: bool) -> None:
    """Raises UsageError where it is not clear what to show."""
    if is_pairs:
        if rank is None or op:
            raise UsageError(
                "pairs are those of one rank",
                next_step="give --pairs --rank R, and --step N or not",
            )
    elif bool(op) == (step is not None) or (step is not None and rank is None):
        raise UsageError(
            "say which ops", next_step="give --rank R --step N, or --op COMM:SEQ", code="which_ops"
        )


def _pairs(run: Run, rank: int, step: int | None, lang: Lang, *, is_json: bool) -> str | bytes:
    view = rank_pairs(
        run.trace, run.aligned_steps, run_id=run.facts.run_id, global_rank=rank,
        step=-1 if step is None else step, step_view=run.calibration.state.view.value,
    )  # fmt: skip
    return (
        pairs_json(view) if is_json else render_pairs(view, lang=lang.value, width=terminal_width())
    )


def _shown(
    run: Run, rank: int | None, step: int | None, op: str, lang: Lang, *, is_json: bool = False
) -> str | bytes:
    """The ops of a step, or one op."""
    width = terminal_width()
    if step is not None and rank is not None:
        view = run.step_ops(global_rank=rank, step=step)
        return ops_json(view) if is_json else render_ops(view, lang=lang.value, width=width)
    story = run.op_stories(op, global_rank=rank)
    return op_json(story) if is_json else render_op(story, lang=lang.value, width=width)


def _referenced(
    paths: Sequence[Path], text: str, folders: Sequence[Path], lang: Lang
) -> str | bytes:
    """What the reference leads to: ops and steps of a run, else what the report tells."""
    reference = parse_reference(text)
    if reference is None:
        raise UsageError(
            f"{text!r} is no reference",
            next_step="copy one that `comminsight explain` prints, such as rank:3 or op:0:41@2",
        )
    progress(f"reading {', '.join(map(str, paths))}")
    with judged(paths, template_folders=folders) as found:
        if found.run is not None and reference.kind is RefKind.STEP:
            return _shown(found.run, reference.ranks[0], reference.step, "", lang)
        if found.run is not None and reference.kind is RefKind.OP:
            op = f"#{reference.comm_id}:{reference.op_seq}"
            return _shown(found.run, reference.ranks[0], None, op, lang)
        return render_reference(found.report, reference, lang=lang.value, width=terminal_width())


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    return call(show, "show", argv)
