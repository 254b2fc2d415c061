"""What a launch of the benchmark asks for, and what it takes away."""

from __future__ import annotations

import subprocess
import sys

import pytest

from comminsight.model.bench import BenchPlan
from comminsight.probe.bench_commands import asking, command, environment, shown


def launch(backend: str, algorithm: str, protocol: str = "Auto") -> BenchPlan:
    return BenchPlan(backend=backend, algorithms=(algorithm,), protocols=(protocol,))


@pytest.mark.parametrize(
    ("backend", "algorithm", "protocol", "asked"),
    [
        ("nccl", "Auto", "Auto", {}),
        ("nccl", "Ring", "Auto", {"NCCL_ALGO": "Ring"}),
        ("nccl", "Tree", "LL128", {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL128"}),
        ("nccl", "Auto", "Simple", {"NCCL_PROTO": "Simple"}),
        ("mpi", "Auto", "Auto", {}),
        ("mpi", "Rabenseifner", "Auto", {
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_allreduce_algorithm": "rabenseifner",
        }),
        ("mpi", "SegmentedRing", "Auto", {
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_allreduce_algorithm": "segmented_ring",
            "OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize": "65536",
        }),
        ("mpi", "Tree", "Auto", {
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_allreduce_algorithm": "nonoverlapping",
            "OMPI_MCA_coll_tuned_reduce_algorithm": "binomial",
            "OMPI_MCA_coll_tuned_bcast_algorithm": "binomial",
        }),
    ],
)  # fmt: skip
def test_the_variables_ask(
    backend: str, algorithm: str, protocol: str, asked: dict[str, str]
) -> None:
    before = {
        "NCCL_ALGO": "NVLS", "NCCL_PROTO": "LL", "OMPI_MCA_coll_tuned_bcast_algorithm": "chain",
        "OMPI_MCA_coll_sm_priority": "90", "HOME": "/h",
    }  # fmt: skip
    plan = launch(backend, algorithm, protocol)
    variables = environment(before, plan)
    about = ("NCCL_ALGO", "NCCL_PROTO", "OMPI_MCA_coll_tuned_")
    assert {key: variables[key] for key in variables if key.startswith(about)} == asked
    # what is no algorithm of ours stays: a component that takes over is to be found out
    assert (variables["OMPI_MCA_coll_sm_priority"], variables["HOME"]) == ("90", "/h")
    assert asking(plan) == asked


def test_nccl_says_what_it_takes() -> None:
    variables = environment({}, launch("nccl", "Auto"))
    assert "TUNING" in variables["NCCL_DEBUG_SUBSYS"].split(",")


@pytest.mark.parametrize(("user", "is_allowed"), [(0, True), (1000, False)])
def test_only_root_asks_to_run_as_root(
    user: int, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    variables = environment({"LD_BIND_NOW": "1"}, launch("mpi", "Auto"))
    assert ("OMPI_ALLOW_RUN_AS_ROOT" in variables) is is_allowed
    assert "LD_BIND_NOW" not in variables
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in environment({}, launch("gloo", "Auto"))


@pytest.mark.parametrize(
    ("backend", "algorithm", "begin"),
    [
        ("nccl", "Auto", "env -u NCCL_ALGO -u NCCL_PROTO "),
        ("nccl", "Ring", "env -u NCCL_ALGO -u NCCL_PROTO NCCL_ALGO=Ring "),
        ("mpi", "Auto", "mpirun -n 2 "),
        ("mpi", "Pairwise", "env OMPI_MCA_coll_tuned_use_dynamic_rules=1 "
         "OMPI_MCA_coll_tuned_alltoall_algorithm=pairwise mpirun -n 2 "),
    ],
)  # fmt: skip
def test_the_plan_shows_them(backend: str, algorithm: str, begin: str) -> None:
    assert shown(launch(backend, algorithm)).startswith(begin)


def test_torch_s_launcher_starts_the_others() -> None:
    words = command(launch("gloo", "Auto"), "p", "f")
    assert words[1:3] == ["-m", "torch.distributed.run"]
    assert words[-3:] == ["comminsight.probe.bench_ranks", "p", "f"]


def test_the_ranks_program_is_read_without_pytorch() -> None:
    program = "import sys; sys.modules['torch'] = None; import comminsight.probe.bench_ranks"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
