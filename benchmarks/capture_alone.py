"""CPU of one all-reduce in a world of one rank: what capture itself costs, without a partner.

Between two ranks on a busy machine most of the time goes to waking each other up; here nothing is
waited for, so that the figure hardly depends on what else runs. Prints the microseconds per op of
the cheapest round.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

from comminsight.lab.pool import free_port

ROUNDS, OPS, WARM_UP_OPS = 20, 250, 200


def main() -> int:
    os.environ.update(
        RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()), GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    x = torch.ones(4)
    for _ in range(WARM_UP_OPS):
        dist.all_reduce(x)
    costs_us = []
    for _ in range(ROUNDS):
        begin_ns = time.process_time_ns()
        for _ in range(OPS):
            dist.all_reduce(x)
        costs_us.append((time.process_time_ns() - begin_ns) / OPS / 1e3)
    dist.destroy_process_group()
    print(min(costs_us))
    return 0


if __name__ == "__main__":
    sys.exit(main())
