"""Exit codes and messages of the front door."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import comminsight
from comminsight import cli
from comminsight.cli.verbs import VERBS
from comminsight.errors import ExitCode, InputError


def exit_code(argv):
    try:
        return cli.main(argv)
    except SystemExit as stop:  # how argparse ends
        return stop.code


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--help"], ExitCode.OK),
        (["--version"], ExitCode.OK),
        ([], ExitCode.USAGE),
        (["no-such-verb"], ExitCode.USAGE),
        (["report"], ExitCode.USAGE),
        (["report", "--no-such-option", "x"], ExitCode.USAGE),
        (["report", "/no/such/run"], ExitCode.BAD_INPUT),
        (["steps", "/no/such/run"], ExitCode.BAD_INPUT),
        (["show", "/no/such/run", "--rank", "0", "--step", "1"], ExitCode.BAD_INPUT),
        (["show", "/no/such/run"], ExitCode.USAGE),
        (["rebuild", "/etc/passwd"], ExitCode.BAD_INPUT),
        (["run"], ExitCode.USAGE),
        (["run", "--overdue", "-1", "--", "true"], ExitCode.USAGE),
        (["run", "--overdue", "0.001", "--", "true"], ExitCode.USAGE),
        (["run", "--overdue", "nan", "--", "true"], ExitCode.USAGE),
        (["run", "--group-map", "nonsense", "--", "true"], ExitCode.USAGE),
        (["run", "--stack-signal", "FOO", "--", "true"], ExitCode.USAGE),
        (["run", "--run-id", "../x", "--", "true"], ExitCode.USAGE),
        (["run", "--run-id", "", "--", "true"], ExitCode.USAGE),
        (["run", "--bogus", "--", "true"], ExitCode.USAGE),
    ],
)
def test_exit_codes(argv, code, capfd):
    assert exit_code(argv) == code
    assert "Traceback" not in capfd.readouterr().err


def test_an_error_names_the_file_and_the_next_step(capsys):
    assert cli.fail(InputError("torn", path="a.box", next_step="delete it")) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == "comminsight: a.box: torn\n  next: delete it\n"


FRONT_DOOR = (sys.executable, "-m", "comminsight.cli")


@pytest.mark.parametrize(
    ("shell", "code"),
    [
        ("{cli} --help >&-", ExitCode.OK),
        ("{cli} --help | true", ExitCode.OK),
        ("{cli} no-such-verb 2>&-", ExitCode.USAGE),
        ("{cli} report /no/such/run 2>&- >&-", ExitCode.BAD_INPUT),
        ("{cli} report {run} | true", ExitCode.OK),
        ("{cli} report {run} >/dev/full", ExitCode.BAD_INPUT),
        ("{cli} report {run} >&-", ExitCode.OK),
        ("{cli} report {run} --templates /no/such/folder", ExitCode.BAD_INPUT),
    ],
)
def test_whatever_our_output_is(shell, code, tmp_path):
    (tmp_path / "inspector_logs").mkdir()
    command = shell.format(cli=" ".join(FRONT_DOOR), run=tmp_path)
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"], capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(comminsight.__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"internal error" not in done.stderr


def test_help_comes_at_once():
    """No verb's module is imported for it: numpy and msgspec alone would take longer."""
    loaded = "import sys, comminsight.cli as c; c.main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, check=True, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(comminsight.__file__).parents[1])},
    )  # fmt: skip
    heavy = {"numpy", "msgspec", "typer", "rich", "torch", "pyarrow", "comminsight.run"}
    assert [name for name in heavy if f"'{name}'" in done.stdout] == []


def test_the_launcher_does_not_import_what_only_reports_need():
    loaded = "import sys, comminsight.cli.run; print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, check=True, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(comminsight.__file__).parents[1])},
    )  # fmt: skip
    heavy = {"typer", "rich", "torch", "pyarrow", "scipy", "comminsight.run"}
    assert [name for name in heavy if f"'{name}'" in done.stdout] == []


def test_every_verb_has_help(capsys):
    for verb in VERBS:
        assert exit_code([verb, "--help"]) == ExitCode.OK, verb
        assert verb in capsys.readouterr().out
