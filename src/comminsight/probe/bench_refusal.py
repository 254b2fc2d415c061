"""What keeps a plan from being launched here; all of it is found before anything is started."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys

from comminsight.errors import UsageError
from comminsight.model.bench import ITEM_BYTES, BenchPlan
from comminsight.model.bench_algorithms import ALGORITHMS, COLLECTIVES, PROTOCOLS

LABEL = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}", re.ASCII)
MPI_DTYPES = ("float32", "float64", "int32")  # those that MPI can add
OPEN_MPI = "(Open MPI)"


def refuse_unknown(plan: BenchPlan) -> None:
    """Raises UsageError for a plan that no launch can do."""
    if not LABEL.fullmatch(plan.label):
        raise UsageError(
            f"the label {plan.label!r} cannot be a part of a file's name",
            next_step="take letters, digits, '_', '-' and '.'",
        )
    _refuse_other((plan.backend,), "backend", tuple(ALGORITHMS))
    for said, name, known in (
        ((plan.dtype,), "dtype", MPI_DTYPES if plan.backend == "mpi" else tuple(ITEM_BYTES)),
        (plan.collectives, "collective", COLLECTIVES),
        (plan.algorithms, "algorithm", ALGORITHMS[plan.backend]),
        (plan.protocols, "protocol", PROTOCOLS[plan.backend]),
    ):  # fmt: skip
        _refuse_other(said, name, known)
    for launch in plan.launches():
        if not launch.collectives:
            raise UsageError(
                f"{plan.backend} has {launch.algorithms[0]} for none of these collectives",
                next_step="name other collectives, or leave the algorithm out",
            )


def _refuse_other(said: tuple[str, ...], name: str, known: tuple[str, ...]) -> None:
    if not said or set(said) - set(known):
        raise UsageError(
            f"{name} {', '.join(said) or 'missing'} is not known here",
            next_step=f"take one of {', '.join(known)}",
        )


def refuse_impossible(plan: BenchPlan) -> None:
    """Raises UsageError where this machine lacks what the plan needs."""
    if plan.backend == "mpi":
        _refuse_without_open_mpi()
        return
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "the ranks need PyTorch, which this Python does not have",
            next_step="install CommInsight into the Python that trains",
        )
    if plan.backend == "nccl":
        _refuse_too_few_gpus(plan.n_ranks)


def _refuse_without_open_mpi() -> None:
    if importlib.util.find_spec("mpi4py") is None:
        raise UsageError(
            "the ranks need mpi4py, which this Python does not have",
            next_step="pip install 'comminsight[mpi]'",
        )
    if shutil.which("mpirun") is None:
        raise UsageError(
            "there is no mpirun on PATH",
            next_step="install Open MPI (Debian: apt install openmpi-bin)",
        )
    said = subprocess.run(
        ["mpirun", "--version"], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    if OPEN_MPI not in said:
        raise UsageError(
            f"mpirun on PATH is not Open MPI's: {said.strip()[:80] or 'it says nothing'}",
            next_step="put the bin folder of Open MPI first on PATH",
        )


def _refuse_too_few_gpus(n_ranks: int) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    n_gpus = int(asked.stdout.strip() or 0) if asked.returncode == 0 else 0
    if n_gpus < n_ranks:
        raise UsageError(
            f"{n_ranks} ranks need {n_ranks} GPUs, torch sees {n_gpus}",
            next_step="ask for fewer ranks, or take --backend gloo",
        )
