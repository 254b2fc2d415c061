"""Answers of NCCL's RAS, made up: eight ranks on two nodes, of which one is behind."""

from __future__ import annotations

import json
from typing import Any

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def ras_rank(comm_rank: int, *, launched: int = 42, **more: Any) -> dict[str, Any]:
    """A member that answered; ``status`` of ``more`` is merged."""
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False,
              "abort_flag": False} | more.pop("status", {})  # fmt: skip
    counts = dict.fromkeys(FUNCTIONS, 0) | {"AllReduce": launched, "Broadcast": 1}
    return {
        "rank": comm_rank, "host": f"10.0.0.{comm_rank // 4 + 1}", "pid": 5000 + comm_rank,
        "cuda_dev": comm_rank % 4, "nvml_dev": comm_rank % 4, "status": status,
        "collective_counts": counts, **more,
    }  # fmt: skip


def ras_missing(comm_rank: int, *, silent: bool = False, dead: bool = False) -> dict[str, Any]:
    """A member of which no data came."""
    status = {"unresponsive": silent or dead, "considered_dead": dead}
    made = ras_rank(comm_rank)
    del made["collective_counts"]
    return made | {"status": status}


def ras_comm(
    comm_hash: int, ranks: list[dict[str, Any]], missing: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    gone = missing or []
    return {
        "hash": f"0x{comm_hash:x}", "secondary_hash": "0x1:0x2", "size": len(ranks) + len(gone),
        "ranks_count": len(ranks), "missing_ranks_count": len(gone), "ranks": ranks,
        "missing_ranks": gone,
    }  # fmt: skip


def ras_json(*comms: dict[str, Any], **more: Any) -> bytes:
    document = {
        "nccl_version": "2.28.9", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
        "timestamp": "2026-03-01 12:00:00", "communicators_count": len(comms),
        "communicators": list(comms), "ras": {"collection_time_sec": 5.01, "timeouts_count": 0},
        **more,
    }  # fmt: skip
    return json.dumps(document, indent=2).encode()


TEXT_HEAD = """\
NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (5.02s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  {errors}

Errors
======

"""
TEXT_BEHIND = (
    TEXT_HEAD.format(errors="MISMATCH")
    + """\
Warnings
========

#0-0 (00000000000000ab) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 42
  Rank 2 has launched up to operation 41 -- GPU 2 managed by process 5002 on node 10.0.0.1

"""
)
TEXT_DEAD = (
    TEXT_HEAD.format(errors="INCOMPLETE,ERROR")
    + """\
INCOMPLETE
  Missing communicator data from 1 job process
  Process 5003 on node 10.0.0.1 managing GPU 3

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 5007 on node 10.0.0.2 managing GPU 3 (NVML 5)

#0-0 (00000000000000ab) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 3 -- GPU 3 managed by process 5003 on node 10.0.0.1
  Rank 7 -- GPU 3 (NVML 5) managed by process 5007 on node 10.0.0.2

#0-0 (00000000000000ab) ERROR
  Asynchronous errors on 2 ranks
  2 ranks reported Remote process error
  Rank 4 -- GPU 0 managed by process 5004 on node 10.0.0.2
  Rank 6 -- GPU 2 managed by process 5006 on node 10.0.0.2

Warnings
========

TIMEOUT
  Encountered 1 communication timeout while gathering communicator data

"""
)
