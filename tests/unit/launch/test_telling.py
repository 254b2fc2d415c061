"""What is said when a job has ended, and that it is bounded in time and size."""

import time

import pytest

from comminsight.launch import judging, telling
from comminsight.launch.telling import tell_end, verdict_line
from comminsight.pipeline.layout import RunPaths
from comminsight.report.catalogue import catalogue
from tests.builders.records import allreduce, comm_row, comm_rows, identity, ops
from tests.builders.segment import segment_bytes


@pytest.fixture
def paths(tmp_path):
    made = RunPaths(tmp_path / "run")
    made.create()
    return made


def recorded(paths):
    folder = paths.segments / identity(0).session_id
    folder.mkdir()
    data = segment_bytes(ops(allreduce(1, 100.0)), comm_rows(comm_row(1, "0")), identity(0))
    (folder / "000001.ciseg").write_bytes(data)


@pytest.mark.parametrize(
    ("lang", "said"), [("en", "no process group was created"), ("zh", "没有创建任何进程组")]
)
def test_that_nothing_was_there_to_record_is_said(lang, said, paths, capsys):
    tell_end(paths, catalogue(lang), 7)
    first, last = capsys.readouterr().err.splitlines()
    assert said in first
    assert "7" in last
    assert last.endswith(f"comminsight report {paths.root}")


def test_the_verdict_comes_before_what_is_next(paths, monkeypatch, capsys):
    recorded(paths)
    monkeypatch.setattr(telling, "verdict_line", lambda *_, is_bad_end: f"Rank 3 ({is_bad_end})")
    tell_end(paths, catalogue("en"), 0)
    assert capsys.readouterr().err.splitlines()[0] == "[comminsight] Rank 3 (False)"
    tell_end(paths, catalogue("en"), 1, "Rank 3 (True)")
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.slow
def test_a_bad_end_gets_a_verdict(paths, monkeypatch):
    monkeypatch.setattr(telling, "DEADLINE_S", 60.0)
    recorded(paths)
    # of two ranks one left records
    assert verdict_line(paths, "en", is_bad_end=True).startswith("The recording has gaps")
    assert verdict_line(paths, "zh", is_bad_end=True).startswith("采集数据缺口")
    assert verdict_line(paths, "en", is_bad_end=False) == ""


def test_neither_size_nor_time_nor_faults_hold_the_launcher_up(paths, tmp_path, monkeypatch):
    monkeypatch.setattr(telling, "JUDGE", "no.such.module")
    assert verdict_line(paths, "en", is_bad_end=True) == ""
    (tmp_path / "slow_judge.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(telling, "JUDGE", "slow_judge")
    monkeypatch.setattr(telling, "DEADLINE_S", 0.2)
    begin_s = time.monotonic()
    assert verdict_line(paths, "en", is_bad_end=True) == ""
    assert time.monotonic() - begin_s < 10
    monkeypatch.setattr(telling, "MAX_BYTES", -1)
    monkeypatch.setattr(telling.subprocess, "run", None)
    assert verdict_line(paths, "en", is_bad_end=True) == ""


def test_the_sentence_is_the_reports(paths, capfdbinary):
    recorded(paths)
    assert judging.main([str(paths.root), "en", "1"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"The recording has gaps")
