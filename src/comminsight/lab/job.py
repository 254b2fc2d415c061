"""``torchrun … -m comminsight.lab.job --job tp_pp_dp …``: one rank of a real job with faults.

Runs over gloo on the loopback interface, one compute thread per rank, no network needed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from comminsight.lab.bare import (
    run_abandon,
    run_flood,
    run_kill,
    run_loader,
    run_threads,
    run_timeout,
)
from comminsight.lab.calls_job import run_calls
from comminsight.lab.context import JobContext
from comminsight.lab.dense import (
    run_ddp,
    run_ddp_accum,
    run_ddp_join,
    run_ddp_members,
    run_fsdp2,
    run_fsdp2_accum,
    run_hsdp,
)
from comminsight.lab.faults import Faults
from comminsight.lab.forms import run_forms
from comminsight.lab.moe import run_moe
from comminsight.lab.options import JobOptions, parse
from comminsight.lab.parallel3d import run_tp_pp_dp
from comminsight.lab.pipelined import run_tp_pp_dp_torch
from comminsight.lab.serving import run_serving, run_serving_ep, run_serving_poll
from comminsight.lab.tensor import run_pp, run_tp, run_tpsp
from comminsight.lab.truth import Truth

JOBS: dict[str, Callable[[JobContext], None]] = {
    "ddp": run_ddp,
    "ddp_accum": run_ddp_accum,
    "ddp_members": run_ddp_members,
    "ddp_join": run_ddp_join,
    "fsdp2": run_fsdp2,
    "fsdp2_accum": run_fsdp2_accum,
    "hsdp": run_hsdp,
    "tp": run_tp,
    "tpsp": run_tpsp,
    "pp": run_pp,
    "tp_pp_dp": run_tp_pp_dp,
    "tp_pp_dp_torch": run_tp_pp_dp_torch,
    "moe": run_moe,
    "serving": run_serving,
    "serving_poll": run_serving_poll,
    "serving_ep": run_serving_ep,
    "flood": run_flood,
    "kill": run_kill,
    "forms": run_forms,
    "threads": run_threads,
    "timeout": run_timeout,
    "abandon": run_abandon,
    "loader": run_loader,
    "calls": run_calls,
}


def run_job(options: JobOptions) -> None:
    """Run one rank of the job; its place comes from RANK, WORLD_SIZE and MASTER_*."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    truth = Truth(options.marks, int(os.environ["RANK"]))
    # The freezer is forked here, before gloo has threads.
    faults = Faults(options, int(os.environ["RANK"]), truth)
    dist.init_process_group("gloo")
    context = JobContext(options, dist.get_rank(), dist.get_world_size(), truth, faults)
    truth.write(
        "job", job=options.job, seed=options.seed, world_size=context.world_size,
        pid=os.getpid(), begin_ns=time.monotonic_ns(),
    )  # fmt: skip
    assert dist.group.WORLD is not None  # noqa: S101 - initialised above
    context.note_group(dist.group.WORLD)
    try:
        JOBS[options.job](context)
        dist.barrier()
    except Exception as error:
        truth.write("error", type=type(error).__name__, text=str(error))
        raise
    dist.destroy_process_group()
    truth.write("end", end_ns=time.monotonic_ns())


def main(argv: Sequence[str]) -> int:
    """0; whatever the job raises ends the process as it would without this module."""
    run_job(parse(argv, tuple(JOBS)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
