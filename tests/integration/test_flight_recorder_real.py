"""Real gloo jobs that get stuck, judged by nothing but the Flight Recorder dumps they leave."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from comminsight.model.verdict import Cause
from comminsight.pipeline.flight_recorder import diagnose_flight_recorder
from tests.integration.launching import REPO, environment
from tests.integration.recording import skip_without_real_jobs

NEITHER: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("scenario", "cause", "culprits"),
    [
        ("sleep", Cause.RANK_NOT_ENTERED, (2,)),
        ("receive", Cause.NO_VERDICT, NEITHER),  # 2 waits for 3; gloo shows of both nothing
        ("order", Cause.OP_TYPE_MISMATCH, (3,)),
        ("healthy", Cause.NO_VERDICT, NEITHER),
    ],
)
def test_a_stuck_job(
    scenario: str, cause: Cause, culprits: tuple[int, ...], tmp_path: Path
) -> None:
    skip_without_real_jobs()
    program = "tests.integration.flight_recorder_program"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=4"]
    ended = subprocess.run(
        [sys.executable, *launcher, "-m", program, scenario, str(tmp_path)],
        cwd=REPO, env=environment(TORCH_FR_BUFFER_SIZE="2000", OMP_NUM_THREADS="1"),
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert len(list(tmp_path.glob("rank_*"))) == 4, ended.stderr.decode()[-2000:]
    verdict = diagnose_flight_recorder([tmp_path], overdue_limit_ns=1).verdict
    assert (verdict.cause, verdict.culprits) == (cause, culprits)
