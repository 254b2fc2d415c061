"""One typed function as a verb: options, exit codes, and readers that go away."""

import io
import sys
from typing import Annotated

import pytest
import typer

from comminsight.cli import typed
from comminsight.cli.choices import Clock
from comminsight.errors import ExitCode, InputError


def answering(result):
    def verb(
        run: Annotated[str, typer.Argument()],
        *,
        clock: Annotated[Clock, typer.Option()] = Clock.ALIGNED,
        strict: Annotated[bool, typer.Option("--strict")] = False,
    ) -> int:
        if isinstance(result, BaseException):
            raise result
        seen.append((run, clock, strict))
        return result

    seen = []
    return verb, seen


@pytest.mark.parametrize(
    ("argv", "result", "code", "seen"),
    [
        (["a"], 0, 0, [("a", Clock.ALIGNED, False)]),
        (["a", "--clock", "raw", "--strict"], 10, 10, [("a", Clock.RAW, True)]),
        (["--strict", "a"], 4, 4, [("a", Clock.ALIGNED, True)]),
        (["a", "--clock=raw"], 0, 0, [("a", Clock.RAW, False)]),
        (["--help"], 0, ExitCode.OK, []),
        ([], 0, ExitCode.USAGE, []),
        (["a", "b"], 0, ExitCode.USAGE, []),
        (["a", "--clock", "sun"], 0, ExitCode.USAGE, []),
        (["a", "--no-such"], 0, ExitCode.USAGE, []),
        (["a"], KeyboardInterrupt(), ExitCode.INTERRUPTED, []),
    ],
)
def test_call(argv, result, code, seen, capfd):
    verb, called = answering(result)
    assert typed.call(verb, "verb", argv) == code
    assert called == seen
    assert "Traceback" not in capfd.readouterr().err


def test_an_error_for_the_user_goes_through():
    verb, _ = answering(InputError("torn", path="x.box"))
    with pytest.raises(InputError, match=r"x\.box: torn"):
        typed.call(verb, "verb", ["a"])


def test_a_closed_door_is_no_full_disk():
    verb, _ = answering(PermissionError(13, "Permission denied", "runs/one"))
    with pytest.raises(InputError, match=r"runs/one: you have no right") as caught:
        typed.call(verb, "verb", ["a"])
    assert caught.value.next_step == "be the user who may, or give another place"


def test_an_error_of_ours_goes_through_too():
    verb, _ = answering(ZeroDivisionError("odd"))
    with pytest.raises(ZeroDivisionError):
        typed.call(verb, "verb", ["a"])


@pytest.mark.parametrize("text", ["a", "a\n", "a\n\n\n", b"a\n", "a\udcff\n"])
def test_output_ends_with_one_newline(text, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written))
    typed.write_output(text)
    sys.stdout.flush()
    assert written.getvalue().rstrip(b"\n") in {b"a", b"a\xff"}
    assert written.getvalue().count(b"\n") == 1
