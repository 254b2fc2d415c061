"""``comminsight diagnose``: the verdict on dumps, as text and JSON, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders.flight_recorder import parallel_job, write_dumps
from tests.unit.cli.calling import call


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    job = parallel_job(2, 2, 2)
    job.host_stops[5] = 30
    write_dumps(tmp_path, job.play())
    return tmp_path


def test_the_rank_at_fault_is_named_in_both_languages(
    dumps: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capfd, "diagnose", dumps)
    assert code == 0
    assert out.startswith("Rank 5 never entered ")
    assert "how well the clocks of the ranks agree is not known" in out
    code, out, _ = call(capfd, "diagnose", dumps, "--lang", "zh")
    assert (code, "Rank 5" in out, "各 Rank 时钟的一致程度未知" in out) == (0, True, True)


def test_json_and_exit_codes(dumps: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, "diagnose", dumps, "--json", "--fail-on", "any")
    report = json.loads(out)
    assert code == 10
    assert report["verdicts"][0]["culprits"] == [5]
    assert report["facts"]["path"] == str(dumps)
    (dumps / "rank_2").unlink()
    code, out, _ = call(capfd, "diagnose", *sorted(dumps.iterdir()), "--strict", "--json")
    assert (code, json.loads(out)["coverage"]["ranks_missing"]) == (4, [2])


def test_bad_input_is_an_error_with_a_next_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for path, said in (
        (tmp_path, "holds nothing that can be judged"),
        (tmp_path / "x", "No such file"),
    ):
        code, out, err = call(capfd, "diagnose", path)
        assert (code, out) == (3, "")
        assert said in err
        assert "next: " in err
    assert call(capfd, "diagnose", tmp_path, "--world-size", 1 << 40)[0] == 2
