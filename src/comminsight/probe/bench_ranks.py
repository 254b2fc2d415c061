"""The program that each rank of a benchmark runs: ``-m comminsight.probe.bench_ranks``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from comminsight.model.bench import BenchPlan
from comminsight.probe.bench_turns import Timed, Turns, turns_of

with contextlib.suppress(ModuleNotFoundError):  # the launch refuses a Python without it
    import torch
    import torch.distributed as dist


def operation(name: str, data: torch.Tensor, n_ranks: int) -> Callable[[], Any]:
    """The call to be timed; outputs are made here, outside the time."""
    rank = dist.get_rank()
    part = torch.empty(data.numel() // n_ranks, dtype=data.dtype, device=data.device)
    work = data.clone()

    def halves() -> torch.Tensor:
        dist.reduce_scatter_tensor(part, data)
        dist.all_gather_into_tensor(work, part)
        return work

    if name == "all_gather":
        whole = data.repeat(n_ranks)
        return lambda: dist.all_gather_into_tensor(whole, data)
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(work),
        "reduce_scatter+all_gather": halves,
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, data),
        "broadcast": lambda: dist.broadcast(work, 0),
        "all_to_all": lambda: dist.all_to_all_single(work, data),
        "send_recv": lambda: _around(work, data, rank, n_ranks),
    }
    return calls[name]


def _around(into: torch.Tensor, data: torch.Tensor, rank: int, n_ranks: int) -> None:
    sends = dist.P2POp(dist.isend, data, (rank + 1) % n_ranks)
    receives = dist.P2POp(dist.irecv, into, (rank - 1) % n_ranks)
    for pending in dist.batch_isend_irecv([sends, receives]):
        pending.wait()


def timed_alike(turns: Turns, call: Callable[[], Any], device: torch.device) -> Timed:
    """One call, begun after a barrier; with a GPU until its work is done."""
    dist.barrier()
    if device.type != "cuda":
        return turns.timed(call)
    torch.cuda.synchronize(device)
    return turns.timed(call, lambda: torch.cuda.synchronize(device))


def halves_agree(plan: BenchPlan, device: torch.device) -> bool:
    """Whether reduce_scatter then all_gather gives all_reduce's numbers; small whole numbers, so
    that the order of sums does not matter."""
    data = torch.arange(64 * plan.n_ranks, device=device) % 7 + dist.get_rank()
    data = data.to(getattr(torch, plan.dtype))
    whole = data.clone()
    dist.all_reduce(whole)
    halves = operation("reduce_scatter+all_gather", data, plan.n_ranks)()
    return bool(torch.equal(whole, halves))


def head_of(device: torch.device, *, agree: bool | None) -> dict[str, object]:
    """Versions and devices of this rank."""
    head: dict[str, object] = {"torch": torch.__version__, "agree": agree}
    if device.type == "cuda":
        head |= {
            "cuda": str(torch.version.cuda),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "gpu": torch.cuda.get_device_name(device),
            "gpus": str(torch.cuda.device_count()),
        }
    return head


def main(plan_path: str, out: str) -> None:
    """Measure the plan's cases round by round: each round has every case once."""
    plan = msgspec.json.decode(Path(plan_path).read_bytes(), type=BenchPlan)
    is_nccl = plan.backend == "nccl"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if is_nccl else torch.device("cpu")
    if is_nccl:
        torch.cuda.set_device(device)
    dist.init_process_group(plan.backend)
    calls = []
    for name, n in plan.cases():
        data = torch.zeros(n, dtype=getattr(torch, plan.dtype), device=device)
        calls.append(operation(name, data, plan.n_ranks))
    does_halves = "reduce_scatter" in plan.collectives  # else the algorithm may lack it
    agree = halves_agree(plan, device) if does_halves else None
    with turns_of(Path(out), dist.get_rank()) as turns:
        for is_counted in turns.begin(head_of(device, agree=agree)):
            timed_alike(turns, calls[0], device)  # the first call after a rest is slow
            measured = [timed_alike(turns, call, device) for call in calls]
            if is_counted:
                turns.keep(measured)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
