"""``torchrun … -m comminsight.lab.nccl_job --log DIR``: one rank of a known NCCL job on GPUs.

It writes down every call that it makes, in order, with the time that CUDA events give for it;
``make gpu`` holds the records of the plugin against that. ``--survey`` prints what the machine has.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

SIZES = (1 << 10, 1 << 18, 1 << 22, 1 << 25)  # elements of float32 in the larger buffer
ELEMENT_BYTES = 4
ROUNDS = 10
BURST_OPS = 500
BURST_ELEMENTS = 1 << 10

Call = Callable[[torch.Tensor, torch.Tensor], Any]


def all_reduce(whole: torch.Tensor, _: torch.Tensor) -> None:
    """One all-reduce of the larger buffer."""
    dist.all_reduce(whole)


def all_gather(whole: torch.Tensor, part: torch.Tensor) -> None:
    """Every rank's part into the larger buffer."""
    dist.all_gather_into_tensor(whole, part)


def reduce_scatter(whole: torch.Tensor, part: torch.Tensor) -> None:
    """The larger buffer, summed, each rank its part."""
    dist.reduce_scatter_tensor(part, whole)


def broadcast(whole: torch.Tensor, _: torch.Tensor) -> None:
    """The larger buffer of rank 0."""
    dist.broadcast(whole, 0)


def ring(whole: torch.Tensor, part: torch.Tensor) -> None:
    """The part to the next rank, a part of the larger buffer from the one before."""
    rank, size = dist.get_rank(), dist.get_world_size()
    received = whole[: part.numel()]
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, part, (rank + 1) % size),
            dist.P2POp(dist.irecv, received, (rank - 1) % size),
        ]
    )
    for work in works:
        work.wait()


# name, call, the ops it is recorded as, and whether their size is that of the part
CALLS: tuple[tuple[str, Call, tuple[str, ...], bool], ...] = (
    ("all_reduce", all_reduce, ("ALL_REDUCE",), False),
    ("all_gather", all_gather, ("ALL_GATHER",), False),
    ("reduce_scatter", reduce_scatter, ("REDUCE_SCATTER",), False),
    ("broadcast", broadcast, ("BROADCAST",), False),
    ("ring", ring, ("SEND", "RECV"), True),
)


def timed_ns(call: Call, whole: torch.Tensor, part: torch.Tensor) -> int:
    """The call's time on the stream that waits for it, by CUDA events."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call(whole, part)
    end.record()
    end.synchronize()
    return int(begin.elapsed_time(end) * 1e6)


def rounds(device: torch.device) -> Iterator[dict[str, object]]:
    """Every call of the timed part, in order; the first of a size warms it up."""
    n_ranks = dist.get_world_size()
    for size in SIZES:
        whole = torch.ones(size // n_ranks * n_ranks, device=device)
        part = torch.ones(size // n_ranks, device=device)
        for number in range(ROUNDS):
            for name, call, ops, is_part in CALLS:
                n_bytes = (part if is_part else whole).numel() * ELEMENT_BYTES
                spent_ns = timed_ns(call, whole, part)
                yield {
                    "call": name, "ops": list(ops), "size_bytes": n_bytes,
                    "event_ns": spent_ns, "is_warm": number > 0,
                }  # fmt: skip


def burst(device: torch.device) -> dict[str, object]:
    """Small all-reduces without a pause: what each costs when nobody waits in between."""
    values = torch.ones(BURST_ELEMENTS, device=device)
    torch.cuda.synchronize()
    begin_ns = time.perf_counter_ns()
    for _ in range(BURST_OPS):
        dist.all_reduce(values)
    torch.cuda.synchronize()
    spent_ns = (time.perf_counter_ns() - begin_ns) // BURST_OPS
    return {
        "call": "burst", "ops": ["ALL_REDUCE"] * BURST_OPS,
        "size_bytes": BURST_ELEMENTS * ELEMENT_BYTES, "event_ns": spent_ns, "is_warm": True,
    }  # fmt: skip


def run_rank(folder: Path) -> None:
    """The job of one rank; its place comes from the launcher's variables."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    with (folder / f"calls-{dist.get_rank()}.jsonl").open("w", encoding="utf-8") as log:
        for entry in rounds(device):
            log.write(json.dumps(entry) + "\n")
        log.write(json.dumps(burst(device)) + "\n")
    dist.destroy_process_group()


def survey() -> dict[str, object]:
    """What this Python and this machine have for an NCCL job."""
    has_nccl = dist.is_available() and dist.is_nccl_available()
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "torch": torch.__version__,
        "n_gpus": n_gpus,
        "gpu": torch.cuda.get_device_name(0) if n_gpus else "",
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_nccl else "",
    }


def main(argv: Sequence[str]) -> int:
    """0; what the job raises ends the process."""
    parser = argparse.ArgumentParser(prog="comminsight.lab.nccl_job", description=__doc__)
    parser.add_argument("--survey", action="store_true")
    parser.add_argument("--log", type=Path, default=Path())
    options = parser.parse_args(argv)
    if options.survey:
        print(json.dumps(survey()))
    else:
        run_rank(options.log)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
