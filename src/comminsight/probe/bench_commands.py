"""What one launch of a benchmark starts, and the variables that ask for its algorithm."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from comminsight.model.bench import BenchPlan
from comminsight.model.bench_algorithms import AUTO, OPENMPI, OPENMPI_SIZES

NCCL_ASKING = ("NCCL_ALGO", "NCCL_PROTO")
TUNED = "OMPI_MCA_coll_tuned_"
BINDINGS = "bindings"  # + process, in the folder of a launch


def command(plan: BenchPlan, plan_path: str, folder: str) -> list[str]:
    """The launcher with the program of each rank; mpirun binds no rank to a core, as PyTorch's
    launcher does not."""
    if plan.backend == "mpi":
        return [
            "mpirun", "-n", str(plan.n_ranks), "--oversubscribe", "--bind-to", "none",
            "-x", "LD_DEBUG=bindings", "-x", f"LD_DEBUG_OUTPUT={Path(folder, BINDINGS)}",
            sys.executable, "-m", "mpi4py", "-m", "comminsight.probe.bench_ranks_mpi",
            plan_path, folder,
        ]  # fmt: skip
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc_per_node", str(plan.n_ranks), "-m", "comminsight.probe.bench_ranks",
        plan_path, folder,
    ]  # fmt: skip


def asking(plan: BenchPlan) -> dict[str, str]:
    """The variables that ask for the algorithm and protocol of one launch; none for Auto."""
    (algorithm,), (protocol,) = plan.algorithms, plan.protocols
    if plan.backend == "mpi":
        values = OPENMPI.get(algorithm, {})
        asked = {f"{TUNED}{op}_algorithm": value for op, (value, _) in values.items()}
        asked |= {f"{TUNED}{key}": size for key, size in OPENMPI_SIZES.get(algorithm, {}).items()}
        return {f"{TUNED}use_dynamic_rules": "1"} | asked if asked else {}
    asked = dict(zip(NCCL_ASKING, (algorithm, protocol), strict=True))
    return {key: value for key, value in asked.items() if value != AUTO}


def environment(base: Mapping[str, str], plan: BenchPlan) -> dict[str, str]:
    """Variables of one launch; what asks for an algorithm in ``base`` is taken away."""
    kept = {key: value for key, value in base.items() if not _asks(key)}
    kept.setdefault("OMP_NUM_THREADS", "1")
    if plan.backend == "mpi":
        kept.pop("LD_BIND_NOW", None)  # then no first call would bind anything
        if os.geteuid() == 0:
            kept |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    else:
        kept |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING"}
    return kept | asking(plan)


def shown(plan: BenchPlan) -> str:
    """The launch as one line for a shell."""
    away = () if plan.backend == "mpi" else [f"-u {key}" for key in NCCL_ASKING]
    asked = [f"{key}={value}" for key, value in asking(plan).items()]
    variables = ["env", *away, *asked] if away or asked else []
    return " ".join([*variables, shlex.join(command(plan, "PLAN", "FOLDER"))])


def _asks(key: str) -> bool:
    return key in NCCL_ASKING or key.startswith(TUNED)
