"""A real job under torch.profiler, told by nothing but the traces that it leaves."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from comminsight.model.ops import Op
from comminsight.model.verdict import Cause
from comminsight.pipeline.diagnose import diagnose
from comminsight.pipeline.job_evidence import gather
from tests.integration.launching import REPO, environment
from tests.integration.recording import skip_without_real_jobs


def test_traces_of_two_gloo_ranks(tmp_path: Path) -> None:
    skip_without_real_jobs()
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    ended = subprocess.run(
        [sys.executable, *launcher, "-m", "tests.integration.kineto_program", str(tmp_path)],
        cwd=REPO, env=environment(OMP_NUM_THREADS="1"), capture_output=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert len(list(tmp_path.iterdir())) == 2, ended.stderr.decode()[-2000:]
    job = gather([tmp_path]).job
    assert (job.world_size, job.unread, job.missing) == (2, (), ())
    counts = Counter((one.global_rank, one.step, Op(one.op).name) for one in job.activities)
    steps = sorted({one.step for one in job.activities})
    assert len(steps) == 3
    assert counts == {
        (rank, step, op): 1
        for rank in (0, 1) for step in steps for op in ("ALL_REDUCE", "BROADCAST")
    }  # fmt: skip
    assert {one.size_bytes for one in job.activities if one.op == Op.ALL_REDUCE} == {4000}
    verdicts = diagnose([tmp_path]).verdicts
    assert [(verdict.cause, verdict.culprits) for verdict in verdicts] == [(Cause.NO_VERDICT, ())]
