"""A verb from one typed function: typer reads the options, usage errors become exit code 2."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer
import typer.main

from comminsight.cli import drop_output
from comminsight.errors import ExitCode, InputError


def call(function: Callable[..., int], name: str, argv: Sequence[str]) -> int:
    """Exit code of ``function`` called with the options in ``argv``."""

    @functools.wraps(function)
    def exiting(*args: Any, **options: Any) -> None:
        raise typer.Exit(guarded(function, *args, **options))

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(exiting)
    try:
        typer.main.get_command(app).main(args=list(argv), prog_name=f"comminsight {name}")
    except SystemExit as stop:
        return int(stop.code or 0) if not isinstance(stop.code, str) else int(ExitCode.USAGE)
    return int(ExitCode.OK)


def guarded(function: Callable[..., int], *args: Any, **options: Any) -> int:
    """The function's exit code; an interrupt, a closed pipe and a full disk have their own."""
    try:
        code = function(*args, **options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        drop_output()
        return int(ExitCode.OK)
    except PermissionError as error:
        drop_output()
        raise InputError(
            "you have no right to open it", path=str(error.filename or "the output"),
            code="not_permitted", next_step="be the user who may, or give another place",
        ) from error  # fmt: skip
    except OSError as error:
        drop_output()
        raise InputError(
            f"{error.strerror}", path=str(error.filename or "the output"),
            code="system", reason=error.strerror,
            next_step="make room or give another place",
        ) from error  # fmt: skip
    return code


def terminal_width() -> int:
    """Columns to write in: the terminal's, at most 120; 100 when it is none."""
    return min(120, shutil.get_terminal_size((100, 24)).columns)


def progress(line: str) -> None:
    """One line of progress on stderr, only for a person who waits."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{line}\n")


def write_output(text: str | bytes) -> None:
    """Text or JSON to stdout, with one newline at its end."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    sys.stdout.flush()
    sys.stdout.buffer.write(data.rstrip(b"\n") + b"\n")
    sys.stdout.buffer.flush()
