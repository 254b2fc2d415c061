"""``comminsight exposed``: traces, a run of our own, an imported run, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comminsight.cli import exposed, import_run
from comminsight.errors import InputError, UsageError
from comminsight.model.ops import Op
from tests.builders.activities import comm, compute
from tests.builders.kineto import TORCH, rank_trace


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in range(2):
        own = [compute(rank, 0, 300), comm(rank, Op.ALL_REDUCE, 250, 100, size_bytes=4096)]
        (folder / f"{rank}.json").write_text(json.dumps(rank_trace(rank, 2, own, TORCH)))
    return folder


def test_traces(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exposed.main([str(traces)]) == 0
    assert "all_reduce has the most exposed time: 100 us over 2 ranks" in capsys.readouterr().out


def test_an_imported_run_still_has_the_compute_of_its_traces(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert import_run.main([str(traces), "--out", str(out)]) == 0
    capsys.readouterr()
    assert exposed.main([str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["source"], told["ops"][0]["overlap_ratio"]) == ("trace", 0.5)


def test_a_run_and_files_are_refused(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert import_run.main([str(traces), "--out", str(out)]) == 0
    with pytest.raises(UsageError, match="a run directory and other files"):
        exposed.main([str(out), str(traces)])


def test_no_trace_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("step 1\n")
    with pytest.raises(InputError, match="no trace with device activities"):
        exposed.main([str(tmp_path)])
