"""The runs of ``capture_overhead.py``: torch is imported once, the ranks are forks."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from comminsight.lab.dense import Mlp
from comminsight.lab.pool import free_port, wait_for

PAIRS = int(os.environ.get("PAIRS", "8"))
OPS, WARM_UP_OPS = 1500, 200
STEPS, WARM_UP_STEPS = 40, 5


def measure() -> dict[str, float]:
    """Medians (wall) and means (CPU) of this rank."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    x = torch.ones(4)
    op_wall_us, op_cpu_us = timed(lambda: dist.all_reduce(x), OPS, WARM_UP_OPS)
    step_wall_us, step_cpu_us = measure_steps()
    dist.barrier()
    dist.destroy_process_group()
    return {
        "op_wall_us": op_wall_us,
        "op_cpu_us": op_cpu_us,
        "step_wall_us": step_wall_us,
        "step_cpu_us": step_cpu_us,
    }


def measure_steps() -> tuple[float, float]:
    """(median wall, mean CPU) microseconds of a DDP step.

    The model is gone before its group: torch's reducer as the last owner of a group ends it with
    the GIL held and can then wait for ever, recorded or not.
    """
    model = DistributedDataParallel(Mlp(256, 4), bucket_cap_mb=2)
    batch = torch.randn(8, 256)

    def step() -> None:
        loss = model(batch).pow(2).mean()
        loss.backward()
        model.zero_grad()
        dist.all_reduce(loss.detach())

    return timed(step, STEPS, WARM_UP_STEPS)


def timed(call: Callable[[], object], n: int, n_warm_up: int) -> tuple[float, float]:
    """(median wall, mean CPU) microseconds of one call."""
    for _ in range(n_warm_up):
        call()
    walls_ns = []
    cpu_begin_ns = time.process_time_ns()
    for _ in range(n):
        begin_ns = time.perf_counter_ns()
        call()
        walls_ns.append(time.perf_counter_ns() - begin_ns)
    cpu_ns = (time.process_time_ns() - cpu_begin_ns) / n
    return statistics.median(walls_ns) / 1e3, cpu_ns / 1e3


def run_pair_side(folder: Path, *, is_recorded: bool) -> dict[str, float]:
    """Measures of rank 0 of one run of two forked ranks."""
    answer, port = folder / "answer.json", free_port()
    pids = []
    for rank in range(2):
        pids.append(os.fork())
        if pids[-1] == 0:
            os.environ.update(
                RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", COMMINSIGHT_BOX_DIR=str(folder),
            )  # fmt: skip
            if not is_recorded:
                os.environ["COMMINSIGHT_LIBRARY"] = ""
            result = measure()
            if rank == 0:
                answer.write_text(json.dumps(result))
            sys.exit(0)
    codes, _ = wait_for(pids, 300.0)
    assert codes == (0, 0), codes
    return json.loads(answer.read_text())


def main(folder: Path) -> int:
    pairs = []
    for n in range(PAIRS):
        order = (False, True) if n % 2 else (True, False)
        sides = {on: run_pair_side(folder, is_recorded=on) for on in order}
        pairs.append({"bare": sides[False], "recorded": sides[True]})
    (folder / "pairs.json").write_text(json.dumps(pairs))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
