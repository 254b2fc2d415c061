"""``comminsight exposed`` on imported runs: Inspector records with times, without, and traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comminsight.cli import exposed, import_run
from comminsight.errors import InputError
from comminsight.model.ops import Op
from tests.builders.activities import comm, compute, in_steps
from tests.builders.inspector import inspector_text
from tests.builders.kineto import write_traces

N_RANKS, N_STEPS, N_CALLS = 3, 8, 4  # calls of a step, of these sizes
SIZES = (1 << 20, 2 << 20, 4 << 20, 4)
STEP_US, CALL_US, TRANSFER_US = 100_000, 5_000, 60
LATE_US = 30_000
Capture = pytest.CaptureFixture[str]


def timed(rank: int, late: int, ahead_us: int) -> bytes:
    """Records of one rank; ``late`` enters the third call of each step late."""
    lines = []
    text = inspector_text(rank, N_RANKS, range(1, N_STEPS * N_CALLS + 1))
    for number, line in enumerate(text.splitlines()):
        step, call = divmod(number, N_CALLS)
        own_us = step * STEP_US + call * CALL_US + (step % 3) * 200
        is_late = call >= 2
        entered_us = own_us + LATE_US * (call > 2 or (is_late and rank == late))
        begun_us = own_us + LATE_US * is_late
        record = json.loads(line)
        record["coll_perf"] |= {
            "coll_msg_size_bytes": SIZES[call],
            "event_trace_ts": {
                "coll_start_ts": 10_000_000_000 + ahead_us + entered_us,
                "coll_stop_ts": 10_000_000_000 + ahead_us + begun_us + TRANSFER_US,
            },
            "coll_exec_time_us": begun_us + TRANSFER_US - entered_us,
        }
        lines.append(json.dumps(record, separators=(",", ":")))
    return "\n".join(lines).encode() + b"\n"


def told(capsys: Capture, *words: str | Path) -> dict[str, Any]:
    assert exposed.main([*map(str, words), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("ahead_us", [0, 3_000_000])
@pytest.mark.parametrize("late", range(N_RANKS))
def test_records_of_the_inspector_tell_who_was_late(
    tmp_path: Path, capsys: Capture, late: int, ahead_us: int
) -> None:
    for rank in range(N_RANKS):
        (tmp_path / f"{rank}.log").write_bytes(timed(rank, late, ahead_us * rank))
    out = tmp_path / "run"
    assert import_run.main([*map(str, tmp_path.glob("*.log")), "--out", str(out)]) == 0
    capsys.readouterr()
    report = told(capsys, out)
    assert (report["source"], report["world_size"]) == ("records", N_RANKS)
    named = {one["global_rank"] for one in report["owners"] if one["kind"] == "late"}
    assert named == {late}
    late_ns = sum(one["exposed_ns"] for one in report["owners"] if one["kind"] == "late")
    assert late_ns == pytest.approx(LATE_US * 1e3 * N_STEPS * (N_RANKS - 1), rel=0.01)
    exposed_ns = sum(one["exposed_ns"] for one in report["ranks"])
    assert sum(one["exposed_ns"] for one in report["owners"]) == exposed_ns
    assert {one["overlap_ratio"] for one in report["ranks"]} == {None}
    assert report["ops"][0]["op"] == "all_reduce"


def test_records_without_a_start_are_refused_with_the_reason(
    tmp_path: Path, capsys: Capture
) -> None:
    for rank in range(2):
        (tmp_path / f"{rank}.log").write_bytes(inspector_text(rank, 2, range(1, 9)))
    out = tmp_path / "run"
    assert import_run.main([*map(str, tmp_path.glob("*.log")), "--out", str(out)]) == 0
    with pytest.raises(InputError) as caught:
        exposed.main([str(out)])
    assert "no op" in str(caught.value)
    assert caught.value.next_step


def test_an_imported_trace_says_what_the_trace_says(tmp_path: Path, capsys: Capture) -> None:
    step = [
        (compute(0, 0, 200), comm(0, Op.ALL_REDUCE, 150, 100, size_bytes=1 << 20)),
        (compute(1, 0, 200), comm(1, Op.ALL_REDUCE, 220, 30, size_bytes=1 << 20)),
    ]
    both = [compute(rank, 300, 20) for rank in range(2)]
    met = [comm(rank, Op.ALL_REDUCE, 350, 9, size_bytes=1 << 10) for rank in range(2)]
    made = in_steps([*step[0], *step[1], *both, *met], 3, 1000)
    folder = write_traces(tmp_path / "traces", made, 2)
    out = tmp_path / "run"
    assert import_run.main([str(folder), "--out", str(out)]) == 0
    capsys.readouterr()
    from_files, from_run = told(capsys, folder), told(capsys, out)
    for report in (from_files, from_run):
        report.pop("unread")
    assert from_files == from_run
    (late,) = [one for one in from_run["owners"] if one["kind"] == "late"]
    # rank 0 waits from 150 us to 220 us; until 200 us its own compute hides that
    assert (late["global_rank"], late["passed_on_ratio"]) == (1, None)
    assert late["exposed_ns"] == pytest.approx(3 * 20_000, abs=3 * from_run["clock_error_ns"])
    assert from_run["ranks"][0]["overlapped_ns"] == 3 * 50_000
