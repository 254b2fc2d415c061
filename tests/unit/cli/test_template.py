"""``comminsight template learn`` through the front door."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.errors import ExitCode
from comminsight.run import open_run
from comminsight.sim import fsdp2_layout, simulate, tensor_layout
from tests.builders.run import write_run
from tests.unit.cli.calling import call


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("r"), simulate(fsdp2_layout(4), steps=9, seed=1))


def test_the_file_that_is_written_gives_the_steps(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own" / "ours.toml"
    path.parent.mkdir()
    code, out, err = call(capfd, "template", "learn", run, "--name", "ours", "--out", path)
    assert code == ExitCode.OK
    assert "Proposed: ours" in out
    assert f"written to {path}; give its folder with --templates" in err
    opened = open_run(run, template_folders=[path.parent])
    assert {step.template for step in opened.step_rows()} == {"ours"}
    assert len(opened.step_rows()) == len(open_run(run).step_rows()) == 9
    code, _, err = call(capfd, "template", "learn", run, "--out", path)
    assert (code, "is there already" in err) == (ExitCode.BAD_INPUT, True)


def test_without_a_file_the_template_is_printed(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capfd, "template", "learn", run, "--lang", "zh")
    assert code == ExitCode.OK
    assert "建议的模板：learned" in out
    assert '[[template]]\nname = "learned"\n' in out


def test_what_the_run_does_not_tell_is_said_with_exit_code_3(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "r", simulate(tensor_layout(2), steps=8, seed=1))
    out_file = tmp_path / "x.toml"
    code, out, _ = call(capfd, "template", "learn", run, "--out", out_file)
    assert code == ExitCode.BAD_INPUT
    assert "no template is proposed: all ops are of one kind and size" in out
    assert not out_file.exists()


@pytest.mark.parametrize(
    "argv", [["learn", "RUN", "--name", "ddp"], ["learn", "RUN", "--name", ""], ["forget", "RUN"]]
)
def test_wrong_words_are_usage_errors(
    run: Path, argv: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    words = [str(run) if word == "RUN" else word for word in argv]
    assert call(capfd, "template", *words)[0] == ExitCode.USAGE


def test_without_an_action_the_help_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "template")
    assert (code, "Propose a template" in out) == (ExitCode.OK, True)
