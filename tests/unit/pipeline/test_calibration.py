"""Preview, apply, clear and history on a recorded run; what readers are shown; staleness."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.model.calibration import CalibrationAction, HistoryEntry, StepView
from comminsight.pipeline.calibration import Act
from comminsight.pipeline.calibration_store import append_entry, read_history, write_correction
from comminsight.pipeline.layout import RunPaths
from comminsight.report.calibration_text import render_calibration_history
from comminsight.run import open_run
from comminsight.sim import LostRecords, megatron_layout, simulate
from tests.builders.run import write_run

ACT = Act(who="ann@node0", at_real_ns=1_790_000_000_000_000_000, reason="rank 3 lags")
OWN = """file_version = 1
[[template]]
name = "tp-pp-dp"
version = 7
priority = 60
open = [{ role = "TP" }]
anchor = [{ role = "GLOBAL" }]
close = [{ role = "GLOBAL" }]
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lossy = simulate(
        megatron_layout(2, 1, 2), steps=25, seed=4, faults=[LostRecords(rank=3, fraction=0.1)]
    )
    return write_run(tmp_path / "run", lossy)


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def steps_of_rank(run: Path, rank: int) -> list[int]:
    return [s.step for s in open_run(run).aligned_steps if rank in s.members]


def test_preview_changes_nothing(run: Path) -> None:
    before = files_of(run)
    view = open_run(run).calibration.preview()
    assert files_of(run) == before
    assert view.correction.counts.n_renumbered > 0
    assert not view.is_applied
    assert view.state.view is StepView.RAW


def test_apply_is_shown_by_every_reader_and_clear_takes_it_back(run: Path) -> None:
    raw = files_of(run)
    raw_steps = open_run(run).session_steps
    view = open_run(run).calibration.apply(ACT)
    (third,) = [s for s in view.correction.sessions if s.global_rank == 3]
    opened = open_run(run)
    assert opened.calibration.state.view is StepView.CALIBRATED
    assert steps_of_rank(run, 3) == sorted({number for number, _ in third.numbers()})
    assert opened.session_steps == raw_steps
    report = opened.report()
    assert report.facts.step_view == "calibrated"
    assert "note.calibrated" in {note.code for note in report.notes}
    last = max(number for number, _ in third.numbers())
    assert opened.step_ops(global_rank=3, step=last).step_view == "calibrated"
    opened.calibration.clear(ACT)
    assert opened.calibration.state.view is StepView.RAW
    assert open_run(run).report().facts.step_view == "raw"
    assert {name: data for name, data in files_of(run).items() if "calibration/" not in name} == raw


def test_history_is_only_added_to(run: Path) -> None:
    calibration = open_run(run).calibration
    calibration.apply(ACT)
    first = files_of(run / "calibration")
    calibration.clear(ACT)
    calibration.apply(ACT)
    history = calibration.history()
    after = files_of(run / "calibration")
    assert {name: after[name] for name in first} == first
    assert sorted(set(after) - set(first)) == ["history-000002.json", "history-000003.json"]
    assert [e.action.value for e in history.entries] == ["apply", "clear", "apply"]
    assert [e.number for e in history.entries] == [1, 2, 3]
    assert {(e.who, e.reason) for e in history.entries} == {("ann@node0", "rank 3 lags")}
    assert history.problems == ()


def test_a_changed_past_shows(run: Path) -> None:
    calibration = open_run(run).calibration
    calibration.apply(ACT)
    calibration.clear(ACT)
    path = run / "calibration" / "history-000001.json"
    path.write_text(path.read_text().replace("ann", "bob"))
    assert open_run(run).calibration.history().problems == ("history-000002.json",)
    assert "note.unreadable" in {note.code for note in open_run(run).notes()}


def test_an_entry_that_was_cut_short_is_named_and_does_not_count(run: Path) -> None:
    open_run(run).calibration.apply(ACT)
    (run / "calibration" / "history-000002.json").write_text('{"number": 2, "act')
    calibration = open_run(run).calibration
    assert calibration.state.view is StepView.CALIBRATED
    assert calibration.problems == ("history-000002.json",)
    calibration.clear(ACT)
    assert open_run(run).calibration.state.view is StepView.RAW
    assert calibration.problems == ("history-000002.json",)


def test_other_templates_make_it_stale_and_apply_computes_it_anew(
    run: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    open_run(run).calibration.apply(ACT)
    changed = open_run(run, template_folders=[tmp_path])
    assert (changed.calibration.state.view, changed.calibration.state.stale) == (
        StepView.RAW, "templates",
    )  # fmt: skip
    assert "note.calibration_stale" in {note.code for note in changed.notes()}
    changed.calibration.apply(ACT)
    assert changed.calibration.state.view is StepView.CALIBRATED
    assert changed.calibration.correction is not None
    assert changed.calibration.correction.templates[0].version == 7
    assert open_run(run).calibration.state.stale == "templates"


def test_more_records_make_it_stale(run: Path) -> None:
    open_run(run).calibration.apply(ACT)
    shorter = simulate(megatron_layout(2, 1, 2), steps=20, seed=4)
    write_run(run, shorter)
    assert open_run(run).calibration.state.stale == "steps"


def test_a_changed_or_missing_correction_is_not_shown(run: Path) -> None:
    open_run(run).calibration.apply(ACT)
    (path,) = (run / "calibration").glob("correction-*.json")
    path.write_text(path.read_text().replace('"step": 0', '"step": 9'))
    assert open_run(run).calibration.state.stale == "unreadable"
    path.unlink()
    assert open_run(run).calibration.state.stale == "unreadable"
    open_run(run).calibration.apply(ACT)
    assert open_run(run).calibration.state.view is StepView.CALIBRATED


def test_every_correction_that_was_changed_is_set_aside_and_told(run: Path) -> None:
    """Twice changed, twice kept: what was applied can be compared with what somebody made of it."""
    for number in (9, 8):
        open_run(run).calibration.apply(ACT)
        (path,) = (run / "calibration").glob("correction-*.json")
        whole = path.read_bytes()
        path.write_text(path.read_text().replace('"step": 0', f'"step": {number}'))
    history = open_run(run).calibration.history()
    assert len(history.set_aside) == 1  # the other is in its place still
    open_run(run).calibration.apply(ACT)
    history = open_run(run).calibration.history()
    assert len(history.set_aside) == 2
    assert path.read_bytes() == whole
    for name in history.set_aside:
        assert (run / "calibration" / name).read_bytes() != whole
        assert name in render_calibration_history(history, width=200)
    assert [open_run(run).calibration.state.stale, history.problems] == ["", ()]


def test_a_correction_whose_place_is_taken_is_an_error_that_says_what_to_do(run: Path) -> None:
    name, _ = write_correction(RunPaths(run), open_run(run).calibration.preview().correction)
    path = run / "calibration" / name
    path.unlink()
    path.mkdir()  # no file can be written or read there, whoever runs this
    with pytest.raises(InputError, match="cannot be written") as caught:
        open_run(run).calibration.apply(ACT)
    assert caught.value.path == str(path)
    assert "calibrate it there" in caught.value.next_step
    history = open_run(run).calibration.history()
    assert (history.entries, history.set_aside) == ((), ())


def test_a_run_without_steps_is_refused(tmp_path: Path) -> None:
    one = write_run(tmp_path, simulate(megatron_layout(2, 1, 2), steps=1, seed=1))
    for folder in (one / "inspector_logs").iterdir():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    for refused in (
        open_run(one).calibration.preview,
        lambda: open_run(one).calibration.apply(ACT),
    ):
        with pytest.raises(InputError, match="no steps to calibrate"):
            refused()
    assert not (one / "calibration").exists()


def _append(root: str, n: int) -> None:
    entry = HistoryEntry(number=0, action=CalibrationAction.CLEAR, at_real_ns=1, who="x")
    for _ in range(n):
        append_entry(RunPaths(Path(root)), entry)


def test_two_processes_that_write_at_once_lose_no_entry(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_append, args=(str(tmp_path), 20)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    entries, problems = read_history(RunPaths(tmp_path))
    assert [entry.number for entry in entries] == list(range(1, 41))
    assert problems == []
