"""``comminsight show --pairs`` through the front door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comminsight.errors import ExitCode
from comminsight.sim import LateRank, ddp_layout, simulate
from tests.builders.run import write_run
from tests.unit.cli.calling import call

MS = 1_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    late = LateRank(rank=1, extra_ns=40 * MS)
    folder = tmp_path_factory.mktemp("pairs") / "run"
    return write_run(folder, simulate(ddp_layout(4), steps=6, seed=1, faults=[late]))


def test_pairs_of_one_step_and_of_all(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "show", run, "--rank", 3, "--pairs", "--step", 4)
    assert code == ExitCode.OK
    assert "Rank 3, step 4: who waited for whom" in out
    whole = json.loads(call(capfd, "show", run, "--rank", 3, "--pairs", "--json")[1])
    assert (whole["global_rank"], whole["step"], whole["n_steps"]) == (3, -1, 6)
    worst = whole["culprits"][0]
    assert (worst["global_rank"], worst["n_steps"]) == (1, 6)
    assert worst["wait_ns"] > 5 * 40 * MS
    assert worst["parts"][0]["op"] == "all_reduce"
    assert "谁等谁" in call(capfd, "show", run, "--rank", 3, "--pairs", "--lang", "zh")[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--pairs"], ExitCode.USAGE),
        (["--pairs", "--step", "1"], ExitCode.USAGE),
        (["--pairs", "--rank", "1", "--op", "#0:3"], ExitCode.USAGE),
        (["--pairs", "--rank", "9"], ExitCode.BAD_INPUT),
        (["--pairs", "--rank", "1", "--step", "99"], ExitCode.BAD_INPUT),
    ],
)
def test_what_cannot_be_shown(
    run: Path, words: list[str], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    got, out, err = call(capfd, "show", run, *words)
    assert (got, out) == (code, "")
    assert "next:" in err
