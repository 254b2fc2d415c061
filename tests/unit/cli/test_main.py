"""Exit codes and messages of the front door."""

import pytest

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
    ],
)
def test_exit_codes(argv, code, capfd):
    assert exit_code(argv) == code
    assert "Traceback" not in capfd.readouterr().err


def test_an_error_names_the_file_and_the_next_step(capsys):
    assert cli.fail(InputError("torn", path="a.box", next_step="delete it")) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == "comminsight: a.box: torn\n  next: delete it\n"


def test_every_verb_has_help(capsys):
    for verb in VERBS:
        assert exit_code([verb, "--help"]) == ExitCode.OK, verb
        assert verb in capsys.readouterr().out
