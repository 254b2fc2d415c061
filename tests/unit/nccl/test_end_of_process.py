"""A process that only the plugin records: its records are closed when it leaves in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.capture.box import read_box
from comminsight.model.hang import Liveness
from comminsight.model.records import is_ended_op
from comminsight.run import open_run
from tests.unit.native.door import LIBRARY
from tests.unit.nccl.playing import run_text
from tests.unit.nccl.scenes import needs_program

pytestmark = needs_program


def _play(folder: Path, end: str) -> list[Liveness]:
    script = f"release 2.30\nranks 2\nall: all_reduce world x5\nall: sync\nend {end}\n"
    run_text(folder, script, plugin=LIBRARY)
    return [read_box(path).liveness for path in sorted((folder / "boxes").glob("*.box"))]


@pytest.mark.parametrize("end", ["finalize", "exit"])
def test_an_orderly_exit_seals_the_segments(tmp_path: Path, end: str) -> None:
    assert _play(tmp_path, end) == [Liveness.CLOSED, Liveness.CLOSED]
    names = [path.name for path in (tmp_path / "spool").rglob("*.ciseg*")]
    assert names == ["000001.ciseg"] * 2
    sessions = open_run(tmp_path / "spool", is_segments_only=True).sessions
    assert [int(is_ended_op(session.records).sum()) for session in sessions] == [5, 5]


def test_a_killed_process_closes_nothing(tmp_path: Path) -> None:
    assert _play(tmp_path, "kill") == [Liveness.DEAD, Liveness.DEAD]
