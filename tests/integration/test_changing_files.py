"""Files that vanish, shrink, grow or become another thing while they are read: an error that names
the place, or a verdict that accuses nobody falsely; never a traceback, never a wait."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comminsight.cli import main
from comminsight.sim.cluster import simulate
from tests.builders.flight_recorder import parallel_job, write_dumps
from tests.builders.log_files import init, timeout, write_logs
from tests.builders.ras import ras_comm, ras_json, ras_rank
from tests.builders.run import small_layout, write_run

ROOT = Path(__file__).resolve().parents[2]
CHANGES = ("gone", "halved", "grown", "overwritten", "a pipe", "a folder", "a loop")
MOMENTS = (("open", 2), ("read", 1))


def dumps(root: Path) -> Path:
    job = parallel_job(2, 2, 1)
    job.host_stops[1] = 20
    return write_dumps(root, job.play())[1]


def logs(root: Path) -> Path:
    ranks = range(4)
    late = [timeout(700.0, rank, seq=7) for rank in ranks if rank != 1]
    write_logs(root, [*init(ranks, world=4), *late, timeout(701.0, 1, seq=6)])
    return sorted(root.rglob("*.log"))[-1]


def answers(root: Path) -> Path:
    write_dumps(root, parallel_job(2, 2, 1).play())
    path = root / "ras.json"
    path.write_bytes(ras_json(ras_comm(1, [ras_rank(rank) for rank in range(4)])))
    return path


def segments(root: Path) -> Path:
    write_run(root, simulate(small_layout(), steps=3, seed=5))
    return sorted(root.rglob("*.ciseg"))[1]


def incident(root: Path) -> Path:
    files = root / "files"
    files.mkdir()
    dumps(files)
    path = root / "one.incident"
    assert main(["incident", str(files), "--out", str(path)]) == 0
    return path


EVIDENCE: dict[str, tuple[Callable[[Path], Path], bool]] = {  # how it is made, is given by itself
    "dumps": (dumps, False), "logs": (logs, False), "answers": (answers, False),
    "segments": (segments, False), "incident": (incident, True),
}  # fmt: skip


def outcomes(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/integration/changing_program.py")],
        input="\n".join(map(json.dumps, cases)), text=True, timeout=900, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVIDENCE)
def test_a_file_that_changes_while_it_is_read(kind: str, tmp_path: Path) -> None:
    make, is_alone = EVIDENCE[kind]
    root = tmp_path / "given"
    root.mkdir()
    target = make(root)
    given = target if is_alone else root
    cases = [
        {"root": str(root), "target": str(target), "change": change, "at": at, "n": n,
         "argv": ["diagnose", str(given), "--json"]}
        for change, (at, n) in itertools.product(CHANGES, MOMENTS)
    ]  # fmt: skip
    whole, *found = outcomes([{**cases[0], "n": 1 << 30}, *cases])
    assert whole["code"] == 0, whole
    blamed = set(json.loads(whole["out"])["verdicts"][0]["culprits"])
    n_changed = 0
    for case, one in zip(cases, found, strict=True):
        said = (case["change"], case["at"], case["n"], one["code"], one["err"])
        n_changed += one["is_changed"]
        assert one["code"] in {0, 3}, said
        assert "Traceback" not in one["err"], said
        if one["code"]:
            assert str(given) in one["err"], said
            assert "next: " in one["err"], said
            continue
        assert set(json.loads(one["out"])["verdicts"][0]["culprits"]) <= blamed, said
    assert n_changed >= len(CHANGES)
