"""``comminsight template learn DIR``: a step template proposed from a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comminsight.cli.choices import Lang
from comminsight.cli.typed import call, progress, terminal_width, write_output
from comminsight.errors import ExitCode, InputError, UsageError
from comminsight.pipeline.template_learning import learn_from, template_text
from comminsight.pipeline.templates import shipped_templates
from comminsight.report.catalogue import catalogue
from comminsight.report.learning_text import render_learning
from comminsight.run import open_run


def learn(
    run: Annotated[Path, typer.Argument(help="run directory", readable=False)],
    *,
    out: Annotated[
        Path | None, typer.Option(help="file for the template (default: printed)")
    ] = None,
    name: Annotated[str, typer.Option(help="name of the template")] = "learned",
    lang: Annotated[Lang, typer.Option(help="language")] = Lang.EN,
) -> int:
    """Propose a template: what bounds a step, on how many ranks and periods it holds, where not."""
    if not name or name in {template.name for template in shipped_templates()}:
        raise UsageError(
            f"the name {name!r} is taken or empty",
            code="name_taken",
            name=name,
            next_step="give another --name",
        )
    progress(f"reading {run}")
    learned = learn_from(open_run(run).sessions, name)
    said = render_learning(learned.learning, run=str(run), lang=lang.value, width=terminal_width())
    if learned.template is None:
        write_output(said)
        return int(ExitCode.BAD_INPUT)
    text = template_text(learned.template, learned.learning, str(run))
    if out is None:
        write_output(f"{said}\n{text}")
        return 0
    write_new(out, text)
    write_output(said)
    sys.stderr.write(catalogue(lang.value).text("learning.written", path=str(out)) + "\n")
    return 0


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet; raises InputError when it is."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError(
            "is there already",
            code="file_exists",
            path=str(path),
            next_step="give another file with --out",
        ) from error


def main(argv: Sequence[str]) -> int:
    """Exit code of the verb."""
    if argv and argv[0] not in {"learn", "-h", "--help"}:
        raise UsageError(
            f"template has no action {argv[0]!r}",
            code="no_action",
            action=argv[0],
            next_step="comminsight template learn DIR",
        )
    return call(learn, "template learn", argv[1:] if argv[:1] == ["learn"] else ["--help"])
