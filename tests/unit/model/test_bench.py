"""What a plan of a benchmark measures, launch by launch."""

from __future__ import annotations

import pytest

from comminsight.model.bench import BenchPlan
from comminsight.model.bench_algorithms import ALGORITHMS, COLLECTIVES, MPI_OPS, collectives_of


@pytest.mark.parametrize(
    ("backend", "asked", "kept"),
    [
        ("nccl", "Tree", ("all_reduce",)),
        ("nccl", "Ring", COLLECTIVES),
        ("gloo", "Tree", COLLECTIVES),
        ("mpi", "Auto", COLLECTIVES),
        ("mpi", "Tree", ("all_reduce", "broadcast")),
        ("mpi", "Ring", ("all_reduce", "reduce_scatter+all_gather", "reduce_scatter",
                         "all_gather")),
        ("mpi", "Pairwise", ("all_to_all",)),
    ],
)  # fmt: skip
def test_an_algorithm_is_asked_for_only_where_there_is_one(
    backend: str, asked: str, kept: tuple[str, ...]
) -> None:
    (launch,) = BenchPlan(backend=backend, algorithms=(asked,)).launches()
    assert launch.collectives == kept


def test_every_algorithm_of_a_backend_has_a_collective() -> None:
    assert MPI_OPS.keys() == set(COLLECTIVES)
    for backend, algorithms in ALGORITHMS.items():
        for algorithm in algorithms:
            assert collectives_of(backend, algorithm, COLLECTIVES), (backend, algorithm)


def test_launches_are_algorithms_by_protocols() -> None:
    plan = BenchPlan(algorithms=("Auto", "Ring"), protocols=("Auto", "LL"))
    assert [one.name for one in plan.launches()] == ["Auto", "Auto-LL", "Ring", "Ring-LL"]
    assert len({one.workload_id for one in plan.launches()}) == 2  # by protocol, not by algorithm


@pytest.mark.parametrize(
    ("n_ranks", "elements", "padded"),
    [(2, (1001,), [1002]), (4, (1, 3, 4, 5), [4, 8]), (3, (9,), [9]), (7, (1 << 20,), [1048579])],
)
def test_elements_are_made_up_to_the_ranks(
    n_ranks: int, elements: tuple[int, ...], padded: list[int]
) -> None:
    plan = BenchPlan(n_ranks=n_ranks, elements=elements, collectives=("all_reduce",))
    assert plan.cases() == [("all_reduce", n) for n in padded]
