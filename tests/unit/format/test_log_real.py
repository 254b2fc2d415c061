"""What torchrun and gloo really write on this machine, when one of three ranks fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from comminsight.format.log_reader import LogReader
from comminsight.model.log_event import LogCode, LogEvent

pytest.importorskip("torch")
pytestmark = [pytest.mark.real, pytest.mark.slow]

PROGRAM = """
import datetime, os, signal, sys
import torch
import torch.distributed as dist

def end_at_once(*error):
    # gloo's threads may abort an interpreter that shuts down: the exit code would be chance
    told(*error)
    sys.stderr.flush()
    os._exit(1)

fault = sys.argv[1]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
dist.all_reduce(torch.ones(4))
if fault == "killed" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if fault == "raised" and rank == 1:
    told, sys.excepthook = sys.excepthook, end_at_once  # torch's names the rank
    raise ValueError("planted")
dist.all_reduce(torch.ones(8 if fault == "shape" and rank == 1 else 4))
"""


def run(folder: Path, fault: str) -> list[LogEvent]:
    program, log = folder / "program.py", folder / "log.txt"
    program.write_text(PROGRAM)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    detail = "DETAIL" if fault == "shape" else "OFF"
    with log.open("wb") as stream:
        done = subprocess.run(
            [*launch, "--tee=3", str(program), fault],
            stdout=stream, stderr=subprocess.STDOUT, timeout=180, check=False,
            env={**os.environ, "TORCH_DISTRIBUTED_DEBUG": detail, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    assert done.returncode != 0
    with log.open("rb") as stream:
        return list(LogReader(stream, file=log.name))


def of(events: list[LogEvent], code: LogCode) -> list[LogEvent]:
    return [event for event in events if event.code is code]


@pytest.mark.parametrize(("fault", "exit_code"), [("killed", -9), ("raised", 1)])
def test_the_rank_that_failed_is_the_root_and_the_others_are_not(
    tmp_path: Path, fault: str, exit_code: int
) -> None:
    events = run(tmp_path, fault)
    (root,) = of(events, LogCode.ELASTIC_ROOT_CAUSE)
    (worker,) = of(events, LogCode.ELASTIC_WORKER_FAILED)
    assert (root.rank, root.local_rank, root.values["exit_code"]) == (1, 1, exit_code)
    assert (worker.local_rank, worker.pid) == (1, root.pid)
    lost = of(events, LogCode.GLOO_CLOSED)
    assert {event.rank for event in lost} <= {0, 2}
    raised = [event.rank for event in of(events, LogCode.PYTHON_EXCEPTION)
              if event.values["message"] == "planted"]  # fmt: skip
    assert raised == [1] * (fault == "raised")


def test_a_mismatch_is_read_with_both_sides(tmp_path: Path) -> None:
    events = of(run(tmp_path, "shape"), LogCode.TORCH_MISMATCH)
    assert {event.rank for event in events} <= {0, 1, 2}
    (own,) = (event for event in events if event.rank == 1)
    assert (own.comm_rank, own.values["shape"], own.values["other_shape"]) == (1, "8", "4")
    assert own.values["file"] != ""
