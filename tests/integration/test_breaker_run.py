"""A job that no template knows, which then hangs: the breaker gives up its steps and nothing else,
and a template brings the steps from the same records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from comminsight.cli import main
from comminsight.model.ops import Op, OpState
from comminsight.model.session import SessionRecord
from comminsight.run import open_run
from tests.builders import MS, comm_row, identity, overdue_marker, segment_bytes, write_segment
from tests.builders.records import record

N_STEPS = 46_000  # of three ops: more than the engine holds without a template
TEMPLATE = """
file_version = 1
[[template]]
name = "own"
version = 1
priority = 900
topology = { min_world = 2, groups = [{ role = "MP", min_size = 2 }] }
open = [{ op = "GATHER" }]
anchor = [{ op = "SCATTER" }]
close = [CLOSE]
"""


def records(rank: int) -> np.ndarray:
    """Gather, scatter, gather-like reduce of odd sizes; rank 1 leaves before the last op."""
    n_ops = 3 * N_STEPS
    rows = np.repeat(record(kind=1, state=OpState.DONE, comm_index=1, dtype=9), n_ops)
    number = np.arange(n_ops)
    rows["op"] = np.array([Op.GATHER, Op.SCATTER, Op.SCATTER])[number % 3]
    rows["size_bytes"] = 64 + 8 * (number * 7919 % 1009)
    rows["count"] = rows["size_bytes"] // 4
    rows["start_ns"] = rows["enqueue_ns"] = 5_000 * MS + number * MS // 2 + rank
    rows["end_ns"] = rows["start_ns"] + MS // 4
    rows["op_seq"] = rows["match_seq"] = number + 1
    if rank == 0:
        last = rows[-1:].copy()
        last["start_ns"] = last["enqueue_ns"] = rows["end_ns"][-1] + MS
        last["op_seq"] = last["match_seq"] = n_ops + 1
        rows = np.concatenate([rows, overdue_marker(last, 0)])
    rows["seq"] = np.arange(1, len(rows) + 1)
    rows["seq_low"] = rows["seq"]
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("run")
    for rank in range(2):
        who = identity(rank, 2, pid=1000 + rank)
        comms = comm_row(1, "0-1", rank, desc=b"model_parallel")
        data = segment_bytes(records(rank), comms, who, sealed=False)
        write_segment(root / "inspector_logs" / who.session_id, data, sealed=False)
    return root


def session_record(path: Path) -> SessionRecord:
    return msgspec.json.decode(path.read_bytes(), type=SessionRecord)


def report(run: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["report", str(run), "--json"]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


def test_steps_are_given_up_and_nothing_else(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = report(run, capsys)
    (note,) = [n for n in made["notes"] if n["code"] == "note.no_steps_because"]
    assert note["params"]["reason"] == "broken.no_template_matches"
    assert (note["params"]["ranks"], note["params"]["n_ops"]) == ([0, 1], 131_072)
    assert note["params"]["after_ns"] > 0
    assert made["steps"] == []
    assert made["coverage"]["tally"]["order_dropped"] == 2 * 3 * N_STEPS - 2 * 131_072
    causes = {verdict["cause"] for verdict in made["verdicts"]}
    assert causes - {"no_verdict"}, made["verdicts"]
    assert sum(len(rank.ops) for rank in open_run(run).trace.ranks) == 2 * 3 * N_STEPS


def test_a_template_brings_the_steps_from_the_same_records(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*.ciseg*")}
    assert main(["rebuild", str(run), "--workers", "1"]) == 0
    assert capsys.readouterr().out.startswith("0 steps of 2 sessions: ")
    saved = [session_record(path) for path in sorted((run / "steps").glob("*.session.json"))]
    assert [one.broken.reason for one in saved if one.broken] == ["no_template_matches"] * 2
    assert {one.broken.at_ns for one in saved if one.broken} == {
        5_000 * MS + 131_071 * MS // 2 + rank for rank in range(2)
    }
    (tmp_path / "own.toml").write_text(
        TEMPLATE.replace("CLOSE", "{ op = 'SCATTER' }, { op = 'SCATTER' }")
    )
    assert main(["rebuild", str(run), "--workers", "1", "--templates", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{2 * N_STEPS} steps of 2 sessions: ")
    narrow = TEMPLATE.replace("min_size = 2", "min_size = 3").replace("CLOSE", "{ op = 'SCATTER' }")
    (tmp_path / "own.toml").write_text(narrow)
    assert main(["rebuild", str(run), "--workers", "1", "--templates", str(tmp_path)]) == 0
    capsys.readouterr()
    saved = [session_record(path) for path in sorted((run / "steps").glob("*.session.json"))]
    assert [one.broken.reason for one in saved if one.broken] == ["topology_not_met"] * 2
    assert before == {path: path.read_bytes() for path in run.rglob("*.ciseg*")}
