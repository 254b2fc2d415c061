"""``comminsight exposed``: traces, a run of our own, an imported run, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comminsight.cli import exposed, import_run
from comminsight.errors import InputError, UsageError
from comminsight.model.ops import Op
from tests.builders.activities import comm, compute
from tests.builders.json_schema import violations
from tests.builders.kineto import TORCH, rank_trace

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/schema/exposed.json").read_text())


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


def test_json_is_as_its_schema_says(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exposed.main([str(traces), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert violations(told, SCHEMA) == []
    assert told["owners"][0]["kind"] == "transfer"


@pytest.mark.parametrize(("name", "begins"), [("p.svg", b"<?xml"), ("p.png", b"\x89PNG")])
def test_a_picture_beside_the_text(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, begins: bytes
) -> None:
    assert exposed.main([str(traces), "--plot", str(tmp_path / name)]) == 0
    assert "all_reduce has the most exposed time" in capsys.readouterr().out
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not \.svg or \.png"):
        exposed.main([str(tmp_path / "no such traces"), "--plot", str(tmp_path / "p.pdf")])


def test_both_languages(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {}
    for lang in ("en", "zh"):
        assert exposed.main([str(traces), "--lang", lang]) == 0
        texts[lang] = capsys.readouterr().out
    assert "What the exposed time went into" in texts["en"]
    assert "暴露时间花在哪里" in texts["zh"]
