"""Ranks that are threads of one process: one black box, and yet every rank is told by itself."""

from __future__ import annotations

import time

import pytest

from comminsight.capture.box import read_box
from comminsight.format.layout import SLOT_OVERDUE
from comminsight.model.hang import Liveness
from comminsight.model.verdict import Cause, Verdict
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.load import load_run
from comminsight.run import open_run
from tests.unit.nccl.scenes import LIBRARY, PROGRAM, kill_all, settled, staged

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not (PROGRAM.exists() and LIBRARY.exists()),
        reason="native programs are not built: make native",
    ),
]
OVERDUE_S = 0.2


def hang_of(spool) -> Verdict:
    (found,) = [v for v in open_run(spool).report().verdicts if v.rule == "hang"]
    return found


@pytest.mark.parametrize(
    ("scenario", "cause", "culprits", "victims"),
    [
        ("missing_caller", Cause.RANK_NOT_ENTERED, (3,), (0, 1, 2)),
        ("behind_compute", Cause.KERNEL_NOT_STARTED, (2,), (0, 1, 3)),
        ("count", Cause.SHAPE_MISMATCH, (1,), (0, 2, 3)),
    ],
)
def test_a_hang_of_threads_is_explained(
    tmp_path, monkeypatch, scenario, cause, culprits, victims
) -> None:
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(tmp_path / "boxes"))
    spool, limit = tmp_path / "spool", str(OVERDUE_S)
    header = "layout threads\n"
    with staged(tmp_path, f"hangs/{scenario}", header=header, COMMINSIGHT_OVERDUE_S=limit) as job:
        settled(job)
        (box,) = (tmp_path / "boxes").iterdir()
        deadline = time.monotonic() + 30
        while any(
            int(s["state_word"]) & 0xFF != SLOT_OVERDUE for s in read_box(box).data.in_flight
        ):
            assert time.monotonic() < deadline, "not overdue in time"
            time.sleep(0.02)
        time.sleep(OVERDUE_S)
        loaded = load_run(RunPaths(spool, is_spool=True), [])
        assert [s.identity.global_rank for s in loaded.sessions] == [0, 1, 2, 3]
        assert {s.liveness for s in loaded.sessions} == {Liveness.ALIVE}
        verdict = hang_of(spool)
        assert (verdict.cause, verdict.culprits, verdict.victims) == (cause, culprits, victims)
        kill_all(job, tmp_path / "boxes")
        verdict = hang_of(spool)
        assert (verdict.cause, verdict.culprits, verdict.victims) == (cause, culprits, victims)
