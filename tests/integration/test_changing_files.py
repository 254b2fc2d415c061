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
from comminsight.model.ops import Op
from comminsight.sim.cluster import simulate
from tests.builders.activities import comm, compute, on_ranks
from tests.builders.flight_recorder import parallel_job, write_dumps
from tests.builders.inspector import inspector_text
from tests.builders.kineto import ROCM, TORCH, Style, write_traces
from tests.builders.log_files import init, timeout, write_logs
from tests.builders.nsys import database, nsys_tables
from tests.builders.ras import ras_comm, ras_json, ras_rank
from tests.builders.run import small_layout, write_run
from tests.unit.format.test_ib_ports import IBSTAT
from tests.unit.format.test_lspci import tree
from tests.unit.format.test_port_counters import RDMA

ROOT = Path(__file__).resolve().parents[2]
CHANGES = ("gone", "halved", "grown", "overwritten", "a pipe", "a folder", "a loop")
MOMENTS = (("open", 2), ("read", 1))
LATER = (*MOMENTS, ("read", 3))  # its head was read, and the library has not opened it yet


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


def trace(root: Path, style: Style) -> Path:
    """Of four ranks that wait for the network most of their time."""
    once = [comm(0, Op.ALL_REDUCE, 1000, 9000, size_bytes=1 << 24), compute(0, 0, 900)]
    write_traces(root, on_ranks(range(4), once), 4, style)
    return sorted(root.iterdir())[2]


def nsys(root: Path) -> Path:
    return database(root / "job.sqlite", nsys_tables((100, 101), world=2))


def inspected(root: Path) -> Path:
    for rank in range(2):
        (root / f"rank{rank}.log").write_bytes(inspector_text(rank, 2, range(400)))
    return root / "rank1.log"


def counters(root: Path) -> Path:
    """What tools printed, in three forms; the target is answered by all of its lines."""
    for name, text in (("n1.lspci", tree(port=True, root=False)), ("n1.ibstat", IBSTAT)):
        (root / name).write_text(text)
    path = root / "n1.counters"
    path.write_text(
        "".join(f"# time {1_777_874_400 + k}\n{RDMA.format(card=0, n=k)}" for k in range(2000))
    )
    return path


TRACES: dict[str, Callable[[Path], Path]] = {
    "trace": lambda root: trace(root, TORCH), "compressed trace": lambda root: trace(root, ROCM),
    "nsys": nsys, "inspector": inspected,
}  # fmt: skip
EVIDENCE: dict[str, tuple[Callable[[Path], Path], bool]] = {  # how it is made, is given by itself
    "dumps": (dumps, False), "logs": (logs, False), "answers": (answers, False),
    "segments": (segments, False), "incident": (incident, True), "counters": (counters, False),
    **{kind: (make, False) for kind, make in TRACES.items()},
}  # fmt: skip


def outcomes(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/integration/changing_program.py")],
        input="\n".join(map(json.dumps, cases)), text=True, timeout=900, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def changes(root: Path, target: Path, argv: list[str]) -> tuple[dict[str, Any], list[Any]]:
    """The outcome where nothing changes, and each change with its outcome."""
    cases = [
        {"root": str(root), "target": str(target), "change": change, "at": at, "n": n, "argv": argv}
        for change, (at, n) in itertools.product(
            CHANGES, LATER if target.suffix == ".sqlite" else MOMENTS
        )
    ]  # fmt: skip
    whole, *found = outcomes([{**cases[0], "n": 1 << 30}, *cases])
    assert whole["code"] == 0, whole
    assert sum(one["is_changed"] for one in found) >= len(CHANGES)
    for case, one in zip(cases, found, strict=True):
        said = (case["change"], case["at"], case["n"], one["code"], one["err"])
        assert one["code"] in {0, 3}, said
        assert "Traceback" not in one["err"], said
        if one["code"]:
            assert str(root if len(argv) > 1 and argv[1] == str(root) else target) in one["err"], (
                said
            )
            assert "next: " in one["err"], said
    return whole, [(one, case) for one, case in zip(found, cases, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVIDENCE)
def test_a_file_that_changes_while_it_is_read(kind: str, tmp_path: Path) -> None:
    make, is_alone = EVIDENCE[kind]
    root = tmp_path / "given"
    root.mkdir()
    target = make(root)
    given = target if is_alone else root
    whole, found = changes(root, target, ["diagnose", str(given), "--json"])
    blamed = set(json.loads(whole["out"])["verdicts"][0]["culprits"])
    for one, case in found:
        if one["code"] == 0:
            assert set(json.loads(one["out"])["verdicts"][0]["culprits"]) <= blamed, case


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trace", "compressed trace", "nsys"])
def test_exposure_of_a_trace_that_changes(kind: str, tmp_path: Path) -> None:
    """A rank whose trace is gone is left out: nobody's numbers become another's."""
    root = tmp_path / "given"
    root.mkdir()
    whole, found = changes(root, TRACES[kind](root), ["exposed", str(root), "--json"])
    sound = by_rank(whole["out"])
    assert sound
    for one, case in found:
        if one["code"] == 0:
            assert by_rank(one["out"]).items() <= sound.items(), case


def by_rank(out: str) -> dict[int, str]:
    """What is told of each rank by itself."""
    return {one["global_rank"]: json.dumps(one) for one in json.loads(out)["ranks"]}
