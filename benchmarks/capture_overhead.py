"""What capture costs a real job on two CPU ranks: per op, and as a share of a 200 ms step.

Pairs of runs, one recorded and one not, in changing order; each run is two forked ranks of one
process that imported torch. Reported are the medians over the pairs of (recorded - bare). CPU time
of the whole process stands beside wall time, because other work on the machine disturbs it less.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from comminsight.errors import InputError
from comminsight.launch.environment import native_library
from comminsight_inject import environment

SOURCES = Path(__file__).resolve().parents[1] / "src"
PAIRS = int(os.environ.get("PAIRS", "8"))
OPS, WARM_UP_OPS = 1500, 200
STEPS, WARM_UP_STEPS = 40, 5
STEP_MS = 200.0
MEASURES = {
    "op_wall_us": "all_reduce of 4 floats, wall",
    "op_cpu_us": "all_reduce of 4 floats, CPU of the process",
    "step_wall_us": "DDP step, wall",
    "step_cpu_us": "DDP step, CPU of the process",
}


def measure() -> dict[str, float]:
    """Medians (wall) and means (CPU) of this rank, and how many ops a step has."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from comminsight.lab.dense import Mlp

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    x = torch.ones(4)
    op_wall_us, op_cpu_us = timed(lambda: dist.all_reduce(x), OPS, WARM_UP_OPS)
    model = DistributedDataParallel(Mlp(256, 4), bucket_cap_mb=2)
    batch = torch.randn(8, 256)

    def step() -> None:
        loss = model(batch).pow(2).mean()
        loss.backward()
        model.zero_grad()
        dist.all_reduce(loss.detach())

    step_wall_us, step_cpu_us = timed(step, STEPS, WARM_UP_STEPS)
    dist.destroy_process_group()
    return {
        "op_wall_us": op_wall_us, "op_cpu_us": op_cpu_us,
        "step_wall_us": step_wall_us, "step_cpu_us": step_cpu_us,
    }  # fmt: skip


def timed(call, n: int, n_warm_up: int) -> tuple[float, float]:
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
    from comminsight.lab.pool import free_port, wait_for

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


def print_table(pairs: list[dict[bool, dict[str, float]]]) -> None:
    print(f"{'':44}{'bare':>10}{'recorded':>10}{'added':>9}   (us, medians of {len(pairs)} pairs)")
    for key, label in MEASURES.items():
        bare = statistics.median(pair[False][key] for pair in pairs)
        recorded = statistics.median(pair[True][key] for pair in pairs)
        added = statistics.median(pair[True][key] - pair[False][key] for pair in pairs)
        share = f"   {added / (STEP_MS * 10):.2f} % of {STEP_MS:.0f} ms" if "step" in key else ""
        print(f"{label:44}{bare:10.0f}{recorded:10.0f}{added:9.0f}{share}")


def main() -> int:
    if importlib.util.find_spec("torch") is None:
        print("skipped: torch is not installed")
        return 0
    if os.environ.get("COMMINSIGHT_INJECT") != "1":
        try:
            library = str(native_library())
        except InputError as error:
            print(f"skipped: {error}")
            return 0
        base = {**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONWARNINGS": "ignore"}
        with tempfile.TemporaryDirectory() as folder:
            env = environment(library, folder, "overhead", base)
            arguments = [sys.executable, __file__, folder]
            return subprocess.run(arguments, env=env, check=False).returncode
    import torch  # noqa: F401 - once, before the forks

    pairs = []
    for n in range(PAIRS):
        order = (False, True) if n % 2 else (True, False)
        pairs.append({on: run_pair_side(Path(sys.argv[1]), is_recorded=on) for on in order})
    print_table(pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
