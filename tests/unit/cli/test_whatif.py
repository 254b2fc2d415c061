"""``comminsight whatif`` through the front door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comminsight.errors import ExitCode
from comminsight.sim import LateRank, megatron_layout, simulate
from tests.builders.run import write_run
from tests.unit.cli.calling import call


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    late = LateRank(3, 30_000_000)
    return write_run(
        tmp_path_factory.mktemp("r"),
        simulate(megatron_layout(2, 1, 4), steps=16, seed=1, faults=[late]),
    )


def test_the_late_rank_stands_first(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "whatif", run)
    assert code == ExitCode.OK
    rows = [line for line in out.splitlines() if line.strip().startswith("rank ")]
    assert rows[0].split()[:2] == ["rank", "3"]
    assert "all TP all_reduce" not in out  # gains nothing


def test_json_tells_the_gain(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "whatif", run, "--json")
    told = json.loads(out)
    assert code == ExitCode.OK
    gains = {tuple(row["ranks"]): row for row in told["rows"] if row["kind"] == "rank"}
    assert 25e6 < gains[3,]["expected_ns"] < 33e6
    assert told["step_ns"] > gains[3,]["high_ns"]


def test_chinese(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "whatif", run, "--lang", "zh")
    assert (code, "所有 rank 与链路" in out) == (ExitCode.OK, True)


def test_a_folder_without_a_run_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(capfd, "whatif", tmp_path)
    assert code == ExitCode.BAD_INPUT
    assert str(tmp_path) in err
