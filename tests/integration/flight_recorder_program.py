"""One rank of a gloo job that gets stuck, and dumps its Flight Recorder from another thread.

python -m tests.integration.flight_recorder_program SCENARIO FOLDER    (under torchrun, 4 ranks)
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

DUMP_AFTER_S = 3.0
SLEEP_S = 600
DUMP = _distributed_c10d._dump_fr_trace  # type: ignore[attr-defined]


def dump(folder: Path, rank: int) -> None:
    """Pickle of what the process recorded, then the end of the process."""
    time.sleep(DUMP_AFTER_S)
    (folder / f"rank_{rank}").write_bytes(DUMP(True, True, False))
    dist.distributed_c10d._get_default_store().add("dumped", 1)
    while dist.distributed_c10d._get_default_store().add("dumped", 0) < dist.get_world_size():
        time.sleep(0.05)
    time.sleep(0.5 if rank == 0 else 0)  # it keeps the store
    os._exit(0)


def play(scenario: str, rank: int) -> None:
    """Ranks 0 and 1 reduce; what 2 and 3 do differs."""
    numbers = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(numbers)
    if scenario == "sleep" and rank == 2:
        time.sleep(SLEEP_S)
    if scenario == "receive" and rank == 3:
        time.sleep(SLEEP_S)
    if scenario == "receive" and rank == 2:
        dist.recv(numbers, 3)
    if scenario == "order" and rank == 3:
        dist.broadcast(numbers, 0)
    dist.all_reduce(numbers)
    if scenario != "healthy":
        dist.all_reduce(torch.ones(8))
    time.sleep(SLEEP_S)


def main() -> None:
    """A rank for as long as its dumps take."""
    scenario, folder = sys.argv[1:]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    threading.Thread(target=dump, args=(Path(folder), rank), daemon=True).start()
    play(scenario, rank)


if __name__ == "__main__":
    main()
