"""Files made to break their reader: one clear error, or a verdict, within seconds and gigabytes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from comminsight.errors import ExitCode
from tests.builders import hostile
from tests.builders.flight_recorder import parallel_job, write_dumps

ROOT = Path(__file__).resolve().parents[2]
MAX_CPU_S, SLACK = 2.0, 4.0  # a busy machine is slower
MAX_PEAK_MIB = 800
# those that are read, because what is odd in them is of no meaning, or is not looked at
READ = {
    "unfolding library", "unfolding types", "unfolding frames", "wide shapes", "in UTF-16",
    "in UTF-32", "gzip in gzip in gzip", *hostile.LARGE, *hostile.OTHERS,
} - {
    "a million members", "a group for each call", "a log of NUL", "an answer of many lines",
    "an answer of many tables",
}  # fmt: skip
TABLES = (hostile.PICKLES, hostile.JSON, hostile.PACKED, hostile.LARGE, hostile.OTHERS)


def outcomes(paths: list[Path]) -> Iterator[dict[str, Any]]:
    """What came of each path, judged in a process of its own with bounds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/integration/hostile_program.py")],
        input="\n".join(map(str, paths)), text=True, env=environment, timeout=900, check=True,
        capture_output=True,
    )  # fmt: skip
    yield from map(json.loads, done.stdout.splitlines())


def check(name: str, path: Path, outcome: Mapping[str, Any], code: int) -> None:
    assert outcome["code"] == code, (name, outcome)
    assert "Traceback" not in outcome["err"], (name, outcome)
    assert outcome["cpu_s"] < SLACK * MAX_CPU_S, (name, outcome)
    assert outcome["peak_mib"] < MAX_PEAK_MIB, (name, outcome)
    if code:
        assert str(path) in outcome["err"], (name, outcome)
        assert "next: " in outcome["err"], (name, outcome)
    else:
        assert json.loads(outcome["out"])["verdicts"][0]["culprits"] == [], (name, outcome)


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES, ids=["pickle", "JSON", "packed", "large", "others"])
def test_what_breaks_readers_breaks_nothing(
    table: Mapping[str, Callable[[], bytes]], tmp_path: Path
) -> None:
    paths = []
    for name, make in table.items():
        path = tmp_path / name.replace(" ", "-") / "dump_rank_0"
        path.parent.mkdir()
        path.write_bytes(make())
        paths.append(path)
    found = list(outcomes(paths))
    assert len(found) == len(table)
    for name, path, outcome in zip(table, paths, found, strict=True):
        check(name, path, outcome, ExitCode.OK if name in READ else ExitCode.BAD_INPUT)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe, loop, empty, end = (tmp_path / name for name in ("pipe", "loop", "empty", "socket"))
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    empty.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(end))
        paths = [pipe, loop, empty, end, Path("/dev/zero"), Path("/dev/null"), tmp_path / "nothing"]
        for path, outcome in zip(paths, outcomes(paths), strict=True):
            check(path.name, path, outcome, ExitCode.BAD_INPUT)


def test_in_a_folder_what_is_no_file_and_what_is_bad_is_passed_over(tmp_path: Path) -> None:
    """The good dumps are judged; the rank of the bad one is unknown, and its file is told."""
    job = parallel_job(2, 2, 1)
    job.host_stops[1] = 20
    write_dumps(tmp_path, job.play())
    os.mkfifo(tmp_path / "rank_9")
    (tmp_path / "rank_8").symlink_to("/dev/zero")
    (good,) = outcomes([tmp_path])
    assert json.loads(good["out"])["verdicts"][0]["culprits"] == [1]
    (tmp_path / "rank_1").write_bytes(hostile.PICKLES["unfolding entries"]())
    (told,) = outcomes([tmp_path])
    verdict = json.loads(told["out"])["verdicts"][0]
    assert verdict["culprits"] == []
    assert verdict["coverage"]["ranks_missing"] == [1]
    assert [m["params"]["source"] for m in verdict["missing"] if m["code"] == "missing.file"] == [
        str(tmp_path / "rank_1")
    ]
