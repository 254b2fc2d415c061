"""Calibration files between a run and the archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.store.archive import Archive
from comminsight.store.calibration import archive_calibration, fetch_calibration

CORRECTION, ENTRY = "correction-0123456789abcdef.json", "history-000001.json"
PREFIX = "jobs/a/runs/b"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.local(tmp_path / "archive")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run" / "calibration"
    made.mkdir(parents=True)
    (made / CORRECTION).write_bytes(b"{1}")
    (made / ENTRY).write_bytes(b"{2}")
    (made / "notes.json").write_bytes(b"mine")
    return made


def test_there_and_back_again(archive: Archive, folder: Path, tmp_path: Path) -> None:
    names = [f"{PREFIX}/calibration/{name}" for name in (CORRECTION, ENTRY)]
    assert archive_calibration(archive, PREFIX, folder) == names
    assert archive_calibration(archive, PREFIX, folder) == names
    other = tmp_path / "other"
    assert [p.name for p in fetch_calibration(archive, PREFIX, other)] == [CORRECTION, ENTRY]
    assert (other / ENTRY).read_bytes() == b"{2}"
    assert fetch_calibration(archive, PREFIX, other) == []


def test_a_history_that_went_another_way_is_refused(archive: Archive, folder: Path) -> None:
    archive_calibration(archive, PREFIX, folder)
    (folder / ENTRY).write_bytes(b"{3}")
    with pytest.raises(InputError, match="other content"):
        archive_calibration(archive, PREFIX, folder)
    with pytest.raises(InputError, match="not what the archive holds"):
        fetch_calibration(archive, PREFIX, folder)
    assert (folder / ENTRY).read_bytes() == b"{3}"
