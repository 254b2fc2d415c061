"""``comminsight templates`` through the front door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comminsight.errors import ExitCode
from comminsight.sim import megatron_layout, simulate
from tests.builders.run import write_run
from tests.unit.cli.calling import call

OWN = """file_version = 1
[[template]]
name = "own"
version = 5
priority = 60
open = [{ role = "TP" }]
close = [{ role = "GLOBAL" }]
anchor = "close"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(
        tmp_path_factory.mktemp("r"), simulate(megatron_layout(2, 1, 2), steps=8, seed=1)
    )


def test_text_and_json_name_the_winner(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "templates", run)
    assert code == ExitCode.OK
    assert "tp-pp-dp version 2 (file version 1) on ranks 0-3: up to 8 steps" in out
    assert "  - the same op on all ranks: holds." in out
    code, out, _ = call(capfd, "templates", run, "--json", "--rank", 3)
    told = json.loads(out)
    assert (code, told["checked"], told["global_rank"]) == (0, "tp-pp-dp", 3)
    assert [check["outcome"] for check in told["checks"]] == ["holds"] * 3
    assert call(capfd, "templates", run, "--lang", "zh")[1].count("成立") == 4


def test_own_templates_are_scored_too(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    code, out, _ = call(capfd, "templates", run, "--templates", tmp_path)
    assert code == ExitCode.OK
    assert "own version 5 (file version 1)" in out
    assert "tp-pp-dp: a template of higher priority fits too" in out


def test_a_bad_template_and_an_absent_rank_are_bad_input(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.toml").write_text(OWN.replace('role = "TP"', 'role = "TQ"'))
    code, _, err = call(capfd, "templates", run, "--templates", tmp_path)
    assert code == ExitCode.BAD_INPUT
    assert "own.toml:6: template 'own': open: role: unknown word 'TQ'" in err
    assert "next: known: global, dp" in err
    assert call(capfd, "templates", run, "--rank", 7)[0] == ExitCode.BAD_INPUT
