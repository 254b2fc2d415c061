"""Lines of logs with what each says, and what launchers and collectors write before a line.

``samples(seed)`` has at least one line for every row of the pattern tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.builders import log_host, log_nccl, log_torch
from tests.builders.log_job import Sample, job

MAKERS = (
    log_nccl.nccl_info,
    log_nccl.nccl_info_more,
    log_nccl.nccl_warn,
    log_nccl.nccl_warn_more,
    log_torch.watchdog,
    log_torch.watchdog_more,
    log_torch.store,
    log_torch.gloo_and_cuda,
    log_host.launchers,
    log_host.launchers_more,
    log_host.surroundings,
    log_host.kernel,
    log_host.kernel_more,
)


def samples(seed: int) -> list[Sample]:
    """Lines of one job, whose numbers depend on the seed."""
    made = job(seed)
    return [sample for make in MAKERS for sample in make(made)]


Wrap = Callable[[str], str]
STAMP = "2026-04-14T16:17:16.250000"


def wrapped_json(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": f"{STAMP}Z"})


def wrapped_journal(line: str) -> str:
    place = {"_HOSTNAME": "birch-17", "_PID": "99", "__REALTIME_TIMESTAMP": "1776183436250000"}
    return json.dumps({**place, "MESSAGE": line, "PRIORITY": "3"})


WRAPS: dict[str, tuple[Wrap, dict[str, str | int]]] = {
    "nothing": (lambda line: line, {}),
    "mpirun": (lambda line: f"[1,3]<stderr>:{line}", {"task": 3}),
    "mpirun 5": (lambda line: f"[1,3]<stdout>: {line}", {"task": 3}),
    "mpirun of SageMaker": (lambda line: f"[1,mpirank:3,algo-1]<stderr>:{line}", {"task": 3}),
    "torchrun": (lambda line: f"[default3]:{line}", {"local_rank": 3}),
    "rank": (lambda line: f"[rank3]: {line}", {"rank": 3}),
    "torch C++": (lambda line: f"[rank3]:[E414 16:17:16.250000000 ProcessGroupNCCL.cpp:616] {line}",
                  {"rank": 3}),
    "torch C++ of old": (lambda line: f"[E ProcessGroupNCCL.cpp:574] {line}", {}),
    "elastic": (lambda line: f"E0414 16:17:16.250000 99 torch/distributed/elastic/x.py:869] {line}",
                {"pid": 99}),
    "C++ with its thread": (lambda line: f"E0414 16:17:16.250000 140259392525312 some/x.cc:9]"
                                         f" {line}",
                            {}),
    "elastic of old": (lambda line: "[2026-04-14 16:17:16,250] torch.distributed.elastic.x.api:"
                       f" [ERROR] {line}", {}),
    "python logging": (lambda line: f"ERROR:torch.distributed.elastic.x:{line}", {}),
    "CRI": (lambda line: f"{STAMP}Z stderr F {line}", {}),
    "docker": (wrapped_json, {}),
    "journal in JSON": (wrapped_journal, {"host": "birch-17", "pid": 99}),
    "kubectl": (lambda line: f"[pod/train-0/main] {line}", {}),
    "kubectl stamped": (lambda line: f"{STAMP}+02:00 {line}", {}),
    "syslog": (lambda line: f"Apr 14 16:17:16 birch-17 trainer[99]: {line}",
               {"host": "birch-17", "pid": 99}),
    "journal": (lambda line: f"2026-04-14T16:17:16+0200 birch-17 kernel: [  12.250000] {line}",
                {"host": "birch-17"}),
    "dmesg": (lambda line: f"[  991.250000] {line}", {}),
    "dmesg -T": (lambda line: f"[Tue Apr 14 16:17:16 2026] {line}", {}),
    "NCCL stamp": (lambda line: f"[2026-04-14 16:17:16] {line}", {}),
    "Ray": (lambda line: f"(Trainer pid=99, ip=10.9.0.3) {line}", {"pid": 99, "host": "10.9.0.3"}),
    "Ray, once for many": (lambda line: f"(Trainer pid=99) {line} [repeated 7x across cluster]",
                           {"n_repeated": 7}),
    "colours": (lambda line: f"\x1b[36m(Trainer pid=99)\x1b[0m {line}", {"pid": 99}),
    "progress bar": (lambda line: f" 11%|#  | 1/9 [00:01]\r 22%|## | 2/9 [00:02]\r{line}\r", {}),
    "glued": (lambda line: f"241it [15:55, 4.39s/it][rank3]:[E414 16:17:16.2 P.cpp:1] {line}",
              {"rank": 3}),
    "four at once": (lambda line: f"{STAMP}Z stderr F (Trainer pid=99) [1,3]<stderr>:[default1]:"
                     f"[rank9]:[E414 16:17:16.2 P.cpp:1] {line}",
                     {"task": 3, "local_rank": 1, "rank": 9}),
}  # fmt: skip
