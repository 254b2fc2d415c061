"""What may be said of a launch: honoured, not honoured, or nothing known."""

from __future__ import annotations

import pytest

from comminsight.diagnosis.bench_decision import decision, evidence_level
from comminsight.model.bench import BenchPlan, Decision, EvidenceLevel, Observed

Told = tuple[Observed, ...] | str


def seen(*pairs: tuple[str, str], proto: str = "LL") -> tuple[Observed, ...]:
    return tuple(Observed(op=op, algo=algo, proto=proto, channels="", source="s")
                 for op, algo in pairs)  # fmt: skip


def launch(backend: str, algorithm: str, protocol: str = "Auto") -> BenchPlan:
    plan = BenchPlan(backend=backend, algorithms=(algorithm,), protocols=(protocol,))
    return plan.launches()[0]


@pytest.mark.parametrize(
    ("asked", "protocol", "told", "found"),
    [
        ("Tree", "Auto", seen(("AllReduce", "TREE")), Decision.USE_ALGORITHM),
        ("Tree", "Auto", seen(("AllReduce", "TREE"), ("ReduceScatter", "RING")),
         Decision.USE_ALGORITHM),
        ("Ring", "Auto", seen(("AllReduce", "RING"), ("AllGather", "NVLS")),
         Decision.USE_ALGORITHM),
        ("Tree", "Auto", seen(("AllReduce", "RING")), Decision.NOT_HONOURED),
        ("Ring", "Auto", seen(("AllReduce", "RING"), ("AllReduce", "NVLS")), Decision.NOT_HONOURED),
        ("Auto", "Auto", seen(("AllReduce", "NVLS")), Decision.USE_ALGORITHM),
        ("Tree", "Auto", seen(("ReduceScatter", "RING")), Decision.USE_TIMES),
        ("Tree", "Auto", seen(("", "RING")), Decision.USE_TIMES),
        ("Tree", "Auto", "unconfirmed", Decision.USE_TIMES),
        ("Ring", "LL", seen(("AllReduce", "RING")), Decision.USE_ALGORITHM),
        ("Ring", "LL128", seen(("AllReduce", "RING")), Decision.NOT_HONOURED),
        ("Auto", "Simple", seen(("AllReduce", "TREE")), Decision.NOT_HONOURED),
        ("Auto", "Simple", seen(("AllReduce", "TREE"), proto="SIMPLE"), Decision.USE_ALGORITHM),
    ],
)  # fmt: skip
def test_all_reduce_alone_is_held_to_what_nccl_was_asked(
    asked: str, protocol: str, told: Told, found: Decision
) -> None:
    plan = launch("nccl", asked, protocol)
    assert decision(plan, EvidenceLevel.CONFIRMED, told) is found
    assert decision(plan, EvidenceLevel.PARTIAL, told) is Decision.DISCARD


RINGS = (("allgather", "ring"), ("allreduce", "ring"), ("reduce_scatter", "ring"))
TREES = (("allreduce", "nonoverlapping"), ("allreduce/reduce", "binomial"), ("bcast", "binomial"))


@pytest.mark.parametrize(
    ("asked", "told", "found"),
    [
        ("Ring", seen(*RINGS), Decision.USE_ALGORITHM),
        ("Ring", seen(*RINGS[1:]), Decision.USE_TIMES),  # nothing tells of allgather
        ("Ring", seen(*RINGS[:2], ("allreduce", "recursivedoubling")), Decision.NOT_HONOURED),
        ("Ring", seen(*RINGS[:1], ("allreduce", "coll/sm"), RINGS[2]), Decision.NOT_HONOURED),
        ("Tree", seen(*TREES), Decision.USE_ALGORITHM),
        ("Tree", seen(*TREES[:1], ("allreduce/reduce", "pipeline"), TREES[2]),
         Decision.NOT_HONOURED),
        ("SegmentedRing", seen(("allreduce", "ring_segmented"), ("allreduce", "ring")),
         Decision.NOT_HONOURED),
        ("Pairwise", "unconfirmed", Decision.USE_TIMES),
    ],
)  # fmt: skip
def test_open_mpi_is_held_to_every_op(asked: str, told: Told, found: Decision) -> None:
    assert decision(launch("mpi", asked), EvidenceLevel.CONFIRMED, told) is found


@pytest.mark.parametrize(
    ("failure", "told", "has_rows", "level"),
    [
        ("", "unconfirmed", True, EvidenceLevel.MEASURED),
        ("", seen(("AllReduce", "RING")), True, EvidenceLevel.CONFIRMED),
        ("died", seen(("AllReduce", "RING")), True, EvidenceLevel.PARTIAL),
        ("died", "unconfirmed", False, EvidenceLevel.NONE),
    ],
)
def test_level(failure: str, told: Told, has_rows: bool, level: EvidenceLevel) -> None:
    assert evidence_level(failure, told, has_rows=has_rows) is level
