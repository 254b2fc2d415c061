"""``comminsight calibrate`` through the front door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comminsight.errors import ExitCode
from comminsight.sim import LostRecords, megatron_layout, simulate
from tests.builders.run import write_run
from tests.unit.cli.calling import call


@pytest.fixture
def run(tmp_path: Path) -> Path:
    faults = [LostRecords(rank=3, fraction=0.1)]
    return write_run(
        tmp_path / "run", simulate(megatron_layout(2, 1, 2), steps=25, seed=4, faults=faults)
    )


def test_the_walk_through(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "calibrate", "preview", run)
    assert code == ExitCode.OK
    assert "of 4 sessions belong to 25 training steps" in out
    assert "nothing was changed" in out
    assert not (run / "calibration").exists()
    assert "nothing was applied or cleared yet" in call(capfd, "calibrate", "history", run)[1]
    assert "- raw: as most ranks counted" in call(capfd, "steps", run)[1]
    _, out, _ = call(capfd, "calibrate", "apply", run, "--reason", "rank 3 lags")
    assert "applied: correction-" in out
    assert "- calibrated\n" in call(capfd, "steps", run)[1]
    assert "numbering  calibrated" in call(capfd, "show", run, "--rank", 0, "--step", 24)[1]
    assert "numbering  calibrated" in call(capfd, "report", run)[1]
    _, out, _ = call(capfd, "calibrate", "clear", run)
    assert "rank 3 lags" in out
    assert "now shown: raw" in out
    assert "当前采用：原始" in call(capfd, "calibrate", "history", run, "--lang", "zh")[1]


def test_json_names_the_view_everywhere(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert json.loads(call(capfd, "steps", run, "--json")[1])["step_view"] == "raw"
    told = json.loads(call(capfd, "calibrate", "apply", run, "--json")[1])
    assert (told["is_applied"], told["state"]["view"]) == (True, "calibrated")
    assert [s["global_rank"] for s in told["correction"]["sessions"]] == [0, 1, 2, 3]
    assert json.loads(call(capfd, "steps", run, "--json")[1])["step_view"] == "calibrated"
    shown = json.loads(call(capfd, "show", run, "--rank", "0", "--step", "24", "--json")[1])
    assert shown["step_view"] == "calibrated"
    report = json.loads(call(capfd, "report", run, "--json")[1])
    assert report["facts"]["step_view"] == "calibrated"
    entries = json.loads(call(capfd, "calibrate", "history", run, "--json")[1])["entries"]
    assert [(e["action"], e["number"]) for e in entries] == [("apply", 1)]


def test_a_place_where_nobody_may_write_is_an_error_with_a_next_step(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (run / "calibration").write_text("a file")
    code, _, err = call(capfd, "calibrate", "apply", run)
    assert code == ExitCode.BAD_INPUT
    assert "cannot be written" in err
    assert "next: copy the run to a place where you may write" in err
