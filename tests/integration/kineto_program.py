"""A small data-parallel job on gloo under torch.profiler: ``kineto_program FOLDER``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights, bucket = torch.ones(64, 64), torch.ones(1000)
    place = str(folder / f"trace_of_{os.getpid()}.json.gz")
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(place),
        record_shapes=True,
    ) as profiler:
        for _ in range(4):
            weights = (weights @ weights).clamp(max=1.0)
            dist.all_reduce(bucket)
            dist.broadcast(weights, 0)
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
