"""A folder that is there and cannot be listed is named: it does not look like nothing recorded."""

from __future__ import annotations

from pathlib import Path

from comminsight.capture.discovery import closed_folders
from comminsight.model.verdict import Cause
from comminsight.run import open_run
from comminsight.sim import ddp_layout, simulate
from tests.builders.run import write_run


def test_missing_folders_hold_nothing_and_odd_ones_are_named(tmp_path: Path) -> None:
    loop, file = tmp_path / "loop", tmp_path / "file"
    loop.symlink_to(loop)
    file.write_text("")
    told = closed_folders([tmp_path, tmp_path / "nothing", None, loop, file])
    assert [one.split(": ")[0] for one in told] == [str(loop), str(file)]


def test_a_run_names_its_closed_folders(tmp_path: Path) -> None:
    write_run(tmp_path, simulate(ddp_layout(4), steps=12, seed=1))
    (tmp_path / "blackbox").symlink_to(tmp_path / "blackbox")
    report = open_run(tmp_path).report()
    assert report.verdicts[0].cause is Cause.HEALTHY
    (note,) = [n for n in report.notes if n.code == "note.unreadable"]
    assert "cannot be listed" in str(note.params["first"])
