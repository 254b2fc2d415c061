"""Class 11: the same data gives other bits."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from comminsight.diagnosis import codes_link as codes
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.result_digest import ResultDigest
from comminsight.model.verdict import Cause
from tests.builders.nccl_job import NcclJob
from tests.cases.field_case import Expected, FieldCase, Scene

FAULT = (Cause.NONDETERMINISTIC_ALGO,)


def digests(name: str, n_ranks: int, bits: tuple[str, ...]) -> tuple[ResultDigest, ...]:
    """One digest per call, the same on every rank."""
    return tuple(
        ResultDigest(global_rank=rank, name=name, call=call, digest=one)
        for rank in range(n_ranks)
        for call, one in enumerate(bits)
    )


def tuned(
    folder: Path, name: str, n_ranks: int, rows: tuple[tuple[str, int, str], ...]
) -> JobEvidence:
    """A run with the tuning lines of each rank."""
    job = NcclJob(1, n_ranks)
    for rank in range(n_ranks):
        for op, n_bytes, algo in rows:
            job.info(rank, 1, f"{op}: {n_bytes} Bytes -> Algo {algo} channel{{Lo..Hi}}={{0..15}}")
    return job.evidence(folder / name)


def in_switch(folder: Path, *, n_ranks: int, sizes: tuple[int, ...], algo: str, op: str) -> Scene:
    """C89: both runs summed in the switch, and their bits differ. In the twin nobody knows whether
    results differ."""
    rows = tuple((op, size, f"{algo} proto SIMPLE") for size in sizes)
    first, second = (tuned(folder, name, n_ranks, rows) for name in ("first", "second"))
    fault = replace(
        first, digests=digests("grad norm", n_ranks, ("a1", "b2")),
        baseline=replace(second, digests=digests("grad norm", n_ranks, ("a1", "c3"))),
    )  # fmt: skip
    told = (codes.ORDER_IN_SWITCH, codes.RESULTS_DIFFER, codes.FIX_ALGORITHM)
    return Scene(
        fault,
        Expected(FAULT, (), told=told),
        replace(first, baseline=second),
        Expected(told=(codes.MISSING_DIGESTS, codes.ORDER_IN_SWITCH)),
    )


def called(folder: Path, name: str, n_ranks: int, op: str, counts: tuple[int, ...]) -> JobEvidence:
    """A run with the calls of each rank."""
    job = NcclJob(1, n_ranks)
    for rank in range(n_ranks):
        for i, count in enumerate(counts):
            job.info(
                rank, 1 + i,
                f"{op}: opCount {i:x} sendbuff 0x7f01 recvbuff 0x7f01 count {count} datatype 7 op "
                f"0 root 0 comm 0x55f0{rank:04x} [nranks={n_ranks}] stream 0x5001",
            )  # fmt: skip
    return job.evidence(folder / name)


def fused(
    folder: Path, *, n_ranks: int, op: str, here: tuple[int, ...], there: tuple[int, ...]
) -> Scene:
    """C90: the same elements in other pieces give other bits. In the twin the ranks of one run hold
    different bits: that is a desync, and no order of sums."""
    first = called(folder, "first", n_ranks, op, here)
    second = called(folder, "second", n_ranks, op, there)
    torn = (*digests("sum", n_ranks - 1, ("0a",)),
            ResultDigest(global_rank=n_ranks - 1, name="sum", digest="ff"))  # fmt: skip
    told = (codes.LAYOUT_DIFFERS, codes.RESULTS_DIFFER)
    other = replace(second, digests=digests("sum", n_ranks, ("0b",)))
    return Scene(
        replace(first, digests=digests("sum", n_ranks, ("0a",)), baseline=other),
        Expected(FAULT, (), told=told),
        replace(first, digests=torn, baseline=other),
    )


def by_size(
    folder: Path, *, n_ranks: int, op: str, here: tuple[int, str], there: tuple[int, str], told: str
) -> Scene:
    """C91: another size, or another choice for one size, takes another algorithm. In the twin the
    results are equal: nothing is wrong."""
    first = tuned(folder, "first", n_ranks, ((op, here[0], f"{here[1]} proto SIMPLE"),))
    second = tuned(folder, "second", n_ranks, ((op, there[0], f"{there[1]} proto SIMPLE"),))
    other = replace(second, digests=digests("logits", n_ranks, ("ee",)))
    return Scene(
        replace(first, digests=digests("logits", n_ranks, ("ff",)), baseline=other),
        Expected(FAULT, (), told=(told, codes.RESULTS_DIFFER)),
        replace(first, digests=digests("logits", n_ranks, ("ee",)), baseline=other),
    )


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        89, "sums in the switch", in_switch,
        (
            {"n_ranks": 8, "sizes": (33_554_432,), "algo": "NVLS", "op": "AllReduce"},
            {"n_ranks": 2, "sizes": (1024, 4096), "algo": "NVLSTree", "op": "AllReduce"},
            {"n_ranks": 4, "sizes": (1 << 28,), "algo": "CollnetDirect", "op": "ReduceScatter"},
        ),
    ),
    FieldCase(
        90, "the same elements in other pieces", fused,
        (
            {"n_ranks": 2, "op": "AllReduce", "here": (100, 200), "there": (300,)},
            {"n_ranks": 8, "op": "ReduceScatter", "here": (4096,), "there": (1024,) * 4},
            {"n_ranks": 4, "op": "Reduce", "here": (7, 8, 9), "there": (12, 12)},
        ),
    ),
    FieldCase(
        91, "an algorithm by size", by_size,
        (
            {"n_ranks": 4, "op": "AllReduce", "here": (17_000_000, "TREE"),
             "there": (21_000_000, "RING"), "told": codes.ALGO_BY_SIZE},
            {"n_ranks": 8, "op": "AllReduce", "here": (1 << 20, "RING"),
             "there": (1 << 20, "TREE"), "told": codes.ALGO_DIFFERS},
            {"n_ranks": 2, "op": "ReduceScatter", "here": (512, "PAT"),
             "there": (4096, "RING"), "told": codes.ALGO_BY_SIZE},
        ),
    ),
)  # fmt: skip
