"""Ranks that are threads of one process: one black box, and yet every rank is told by itself."""

from __future__ import annotations

import pytest

from comminsight.model.hang import Liveness
from comminsight.model.verdict import Cause, Verdict
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.load import load_run
from comminsight.run import open_run
from tests.unit.nccl.scenes import kill_all, needs_program, settled, staged, wait_until_overdue

pytestmark = [pytest.mark.real, needs_program]
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
        wait_until_overdue(tmp_path / "boxes", OVERDUE_S)
        assert len([*(tmp_path / "boxes").iterdir()]) == 1
        loaded = load_run(RunPaths(spool, is_spool=True), [])
        assert [s.identity.global_rank for s in loaded.sessions] == [0, 1, 2, 3]
        assert {s.liveness for s in loaded.sessions} == {Liveness.ALIVE}
        verdict = hang_of(spool)
        assert (verdict.cause, verdict.culprits, verdict.victims) == (cause, culprits, victims)
        kill_all(job, tmp_path / "boxes")
        verdict = hang_of(spool)
        assert (verdict.cause, verdict.culprits, verdict.victims) == (cause, culprits, victims)
