"""A hang of a job with steps: after which of them, and in which phase."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from comminsight.model.verdict import ChainLevel, ChainLink
from comminsight.pipeline.hang_store import write_hang
from comminsight.pipeline.layout import RunPaths
from comminsight.run import Run, open_run
from comminsight.sim import LostRank, fsdp2_layout, hang_event, run_trace, simulate
from tests.builders.chains import faults
from tests.builders.run import write_run

LOST, STEP = 2, 10


def hung(root: Path, op_index: int) -> Run:
    """Rank 2 of 4 stands still in step 10, before its op of that place."""
    sim = simulate(fsdp2_layout(4), steps=14, seed=3, faults=(LostRank(LOST, STEP, op_index),))
    paths = RunPaths(write_run(root, sim, sealed=False))
    paths.create()
    write_hang(paths, replace(hang_event(sim), communicators=run_trace(sim).communicators))
    return open_run(root)


@pytest.mark.parametrize(("op_index", "phase"), [(0, "forward"), (5, "backward")])
def test_a_hang_is_told_after_its_step_and_in_its_phase(
    op_index: int, phase: str, tmp_path: Path
) -> None:
    run = hung(tmp_path / "run", op_index)
    verdict = run.report().verdicts[0]
    assert verdict.culprits == (LOST,)
    assert faults(verdict.chain) == []
    step = next(link for link in verdict.chain if link.level is ChainLevel.STEP)
    told = f"after {STEP - 1}, {phase}"
    assert step == ChainLink(ChainLevel.STEP, told, f"rank:{LOST}/step:{STEP - 1}")
    assert run.step_ops(global_rank=LOST, step=STEP - 1).is_complete
