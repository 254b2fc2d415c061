"""What a launch of the benchmark asks for, and what may be said of what it did."""

from __future__ import annotations

import subprocess
import sys

import pytest

from comminsight.model.bench import COLLECTIVES, BenchPlan, Decision, EvidenceLevel, Observed
from comminsight.probe.bench_launch import _decision, environment


def seen(*pairs: tuple[str, str]) -> tuple[Observed, ...]:
    return tuple(Observed(op=op, algo=algo, proto="LL", channels="", source="s")
                 for op, algo in pairs)  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "told", "decision"),
    [
        ("Tree", seen(("AllReduce", "TREE")), Decision.USE_ALGORITHM),
        ("Tree", seen(("AllReduce", "TREE"), ("ReduceScatter", "RING")), Decision.USE_ALGORITHM),
        ("Ring", seen(("AllReduce", "RING"), ("AllGather", "NVLS")), Decision.USE_ALGORITHM),
        ("Tree", seen(("AllReduce", "RING")), Decision.NOT_HONOURED),
        ("Ring", seen(("AllReduce", "RING"), ("AllReduce", "NVLS")), Decision.NOT_HONOURED),
        ("Auto", seen(("AllReduce", "NVLS")), Decision.USE_ALGORITHM),
        ("Tree", seen(("ReduceScatter", "RING")), Decision.USE_TIMES),
        ("Tree", seen(("", "RING")), Decision.USE_TIMES),
        ("Tree", "unconfirmed", Decision.USE_TIMES),
    ],
)
def test_all_reduce_alone_is_held_to_what_was_asked(
    asked: str, told: tuple[Observed, ...] | str, decision: Decision
) -> None:
    assert _decision(EvidenceLevel.CONFIRMED, asked, told) is decision
    assert _decision(EvidenceLevel.PARTIAL, asked, told) is Decision.DISCARD


@pytest.mark.parametrize(("asked", "algo"), [("Auto", None), ("Ring", "Ring"), ("Tree", "Tree")])
def test_auto_takes_the_variable_away(asked: str, algo: str | None) -> None:
    variables = environment({"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"}, BenchPlan(), asked)
    assert variables.get("NCCL_ALGO") == algo
    assert "NCCL_PROTO" not in variables
    assert "TUNING" in variables["NCCL_DEBUG_SUBSYS"].split(",")


@pytest.mark.parametrize(
    ("backend", "asked", "kept"),
    [
        ("nccl", "Tree", ("all_reduce",)), ("nccl", "Ring", COLLECTIVES),
        ("gloo", "Tree", COLLECTIVES),
    ],
)  # fmt: skip
def test_a_tree_is_asked_for_only_where_there_is_one(
    backend: str, asked: str, kept: tuple[str, ...]
) -> None:
    assert BenchPlan(backend=backend).of_launch(asked).collectives == kept


@pytest.mark.parametrize(
    ("n_ranks", "elements", "padded"),
    [(2, (1001,), [1002]), (4, (1, 3, 4, 5), [4, 8]), (3, (9,), [9]), (7, (1 << 20,), [1048579])],
)
def test_elements_are_made_up_to_the_ranks(
    n_ranks: int, elements: tuple[int, ...], padded: list[int]
) -> None:
    plan = BenchPlan(n_ranks=n_ranks, elements=elements, collectives=("all_reduce",))
    assert plan.cases() == [("all_reduce", n) for n in padded]


def test_the_ranks_program_is_read_without_pytorch() -> None:
    program = "import sys; sys.modules['torch'] = None; import comminsight.probe.bench_ranks"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
