"""Class 14: counters that cannot be a key, and what NCCL's RAS alone proves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comminsight.diagnosis import codes, codes_groups
from comminsight.model.verdict import Cause
from tests.builders.ras import ras_comm, ras_json, ras_rank
from tests.cases.field_case import Expected, FieldCase, Scene
from tests.cases.group_scenes import init_lines, nccl_lines, two, variants

OPS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")


def few_ahead(
    folder: Path, *, n_ranks: int, ahead: tuple[int, ...], launched: int, op: str, n_absurd: int,
    is_repeated: bool,
) -> Scene:  # fmt: skip
    """RAS names the few that are ahead; those behind are all others, and nothing tells which side
    is wrong (C118). In the twin all launched as many."""
    fault, twin = two(folder)
    counts = {rank: launched + (rank in ahead) for rank in range(n_ranks)}
    absurd = {4_000_000_000 + k: 7 for k in range(n_absurd)}
    for n in range(1 + is_repeated):
        stamp = f"2026-03-01 12:0{n}:00"
        (fault / f"ras-{n}.json").write_bytes(answer(counts | absurd, op=op, timestamp=stamp))
    (twin / "ras.json").write_bytes(answer(dict.fromkeys(range(n_ranks), launched), op=op))
    told = [codes_groups.RAS_BEHIND, codes_groups.MISSING_SIDE_STATE]
    told += [codes.MISSING_RAS_UNREAD] * (n_absurd > 0)
    return Scene(fault, Expected(told=tuple(told)), twin)


def answer(launched: Mapping[int, int], *, op: str = "AllReduce", **more: Any) -> bytes:
    """An answer about one communicator, with the launches of each rank."""
    ranks = []
    for rank, n in launched.items():
        member = ras_rank(rank)
        member["collective_counts"] = dict.fromkeys(OPS, 1) | {op: n}
        ranks.append(member)
    return ras_json(ras_comm(0xAB, ranks), **more)


def unmoving_counter(
    folder: Path, *, n_ranks: int, n_calls: int, odd: int, at: int, other: str
) -> Scene:
    """The counter of NCCL stays 0 on one node, so calls are numbered as they appear (C117): one
    rank calls something else. In the twin all lines are alike, and no op is seen twice."""
    fault, twin = two(folder)
    for place in (fault, twin):
        for rank in range(n_ranks):
            comm = f"0x7a{rank:02x}"
            lines = init_lines(comm, rank, n_ranks, comm_hash="0xee", end=True)
            for n in range(n_calls):
                is_odd = place == fault and rank == odd and n == at
                lines.append(_call(other if is_odd else "AllReduce", 8 + n % 5, comm, n_ranks))
            nccl_lines(place, rank, lines, is_apart=True)
    return Scene(fault, Expected((Cause.OP_TYPE_MISMATCH,), (odd,)), twin)


def _call(op: str, count: int, comm: str, n_ranks: int) -> str:
    return (
        f"{op}: opCount 0 sendbuff 0x7f1 recvbuff 0x7f2 count {count} datatype 7 op 0 root 0"
        f" comm {comm} [nranks={n_ranks}] stream 0x55"
    )


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        117,
        "a counter that stays 0",
        unmoving_counter,
        variants(
            {"n_ranks": 8, "n_calls": 100, "odd": 5, "at": 57, "other": "AllGather"},
            {"n_ranks": 4, "n_calls": 17, "odd": 0, "at": 8, "other": "ReduceScatter"},
            {"n_ranks": 3, "n_calls": 250, "odd": 2, "at": 100, "other": "Broadcast"},
        ),
    ),
    FieldCase(
        118,
        "few ranks ahead of the many",
        few_ahead,
        variants(
            {"n_ranks": 32, "ahead": (12, 13), "launched": 640, "op": "AllReduce", "n_absurd": 0,
             "is_repeated": False},
            {"n_ranks": 128, "ahead": (0,), "launched": 7, "op": "ReduceScatter", "n_absurd": 2,
             "is_repeated": True},
            {"n_ranks": 8, "ahead": (1, 3, 5), "launched": 0, "op": "AllGather", "n_absurd": 0,
             "is_repeated": True},
        ),
    ),
)  # fmt: skip
