"""``comminsight explain``: every command that it prints opens what it says."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from comminsight.model.verdict import ChainLevel
from comminsight.sim import LateRank, simulate
from tests.builders.flight_recorder import parallel_job, write_dumps
from tests.builders.run import small_layout, write_run
from tests.unit.cli.calling import call


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 8 ranks in which rank 3 is late, in a folder with a blank in its name."""
    folder = tmp_path_factory.mktemp("a run") / "one"
    late = LateRank(3, 80_000_000)
    return write_run(folder, simulate(small_layout(), steps=25, seed=3, faults=(late,)))


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = parallel_job(2, 2, 2)
    job.host_stops[5] = 30
    folder = tmp_path_factory.mktemp("dumps")
    write_dumps(folder, job.play())
    return folder


def commands(text: str) -> list[list[str]]:
    """The words of every command line in the text, behind the program's name."""
    lines = [line.strip() for line in text.splitlines()]
    found = [shlex.split(line) for line in lines if line.startswith("comminsight ")]
    return [words[1:] for words in found]


@pytest.mark.parametrize("given", ["run", "dumps"])
def test_every_printed_command_works(
    given: str, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    path = request.getfixturevalue(given)
    code, out, _ = call(capfd, "explain", path)
    assert code == 0
    told = commands(out)
    assert len(told) >= 4
    for words in told:
        code, shown, err = call(capfd, *words)
        assert (code, err) == (0, ""), words
        assert shown.strip(), words


def test_a_straggler_is_explained(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capfd, "explain", run)
    assert out.startswith("Rank 3 on node0 held the others up")
    for said in ("rank:3/step:0", "How it was told", "What would refute it", "critical path",
                 "stacks of rank 3"):  # fmt: skip
        assert said in out
    assert "root cause" not in out
    _, zh, _ = call(capfd, "explain", run, "--lang", "zh")
    assert "如何得出" in zh
    assert "关键路径" in zh


def test_a_hang_names_the_op_and_who_held_it_and_no_root_cause(
    dumps: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = call(capfd, "explain", dumps)
    flat = " ".join(out.split())
    assert "The earliest op that did not progress is " in flat
    assert "held by: rank 5." in flat
    assert "root cause" not in flat


@pytest.mark.parametrize("wanted", [["1"], ["COMPUTE_STRAGGLER"], ["--verdict", "1"], []])
def test_a_verdict_is_named_by_number_or_cause(
    wanted: list[str], run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capfd, "explain", run, *wanted, "--json")
    verdict = json.loads(out)
    assert (code, verdict["cause"], verdict["culprits"]) == (0, "COMPUTE_STRAGGLER", [3])
    assert [link["level"] for link in verdict["chain"]] == [level.value for level in ChainLevel]


def test_a_verdict_that_is_not_there_is_an_error(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for wanted in ("9", "RANK_DEAD"):
        code, out, err = call(capfd, "explain", run, wanted)
        assert (code, out) == (3, "")
        assert "1 COMPUTE_STRAGGLER" in err
    code, _, err = call(capfd, "explain", run, "RANK_DEAD", "--lang", "zh")
    assert "此报告中没有结论" in err


@pytest.mark.parametrize(
    ("ref", "code", "said"),
    [
        ("rank:99", 3, "rank:0"),
        ("comm:99", 3, "comm:0"),
        ("verdict:2", 3, "verdict:1"),
        ("evidence:1.99", 3, "evidence:1.1"),
        ("rank:3/step:999", 3, "closed steps"),
        ("rank:-3", 2, "no reference"),
        ("/etc/passwd", 2, "no reference"),
    ],
)
def test_a_reference_to_nothing_is_an_error(
    ref: str, code: int, said: str, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    got, out, err = call(capfd, "show", run, "--ref", ref)
    assert (got, out) == (code, "")
    assert said in err
