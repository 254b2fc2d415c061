"""Class 5, attribution over many groups: which node, and the group in which the chain begins."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as told
from comminsight.model.counters import CounterSeries
from comminsight.model.verdict import Cause
from comminsight.pipeline.job_evidence import gather
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.cases.field_case import Expected, FieldCase, Scene
from tests.cases.group_scenes import init_lines, two, variants

S = 1_000_000_000


def grid(tp: int, dp: int) -> dict[str, Group]:
    """The world, tensor groups of neighbours, and data groups across them."""
    n_ranks = tp * dp
    groups = {"0": Group("default_pg", tuple(range(n_ranks)))}
    lines = [("mesh_tp", tuple(range(k * tp, (k + 1) * tp))) for k in range(dp)]
    lines += [("mesh_dp", tuple(range(k, n_ranks, tp))) for k in range(tp)]
    for desc, members in lines:
        groups[str(len(groups))] = Group(desc, members)
    return groups


def programs(tp: int, dp: int, n_steps: int, n_layers: int) -> dict[int, list[Call]]:
    """Layers of tensor parallel reductions, then the gradients."""
    return {
        rank: ([Call(str(1 + rank // tp), "all_reduce", (256,))] * n_layers
               + [Call(str(1 + dp + rank % tp), "all_reduce", (4096,))]) * n_steps
        for rank in range(tp * dp)
    }  # fmt: skip


def absent_rank(
    folder: Path, *, tp: int, dp: int, culprit: int, n_steps: int, n_layers: int,
    per_node: int, is_json: bool,
) -> Scene:  # fmt: skip
    """One rank of one tensor group is missing, and the data groups are stuck behind (C44): the
    verdict names it, each group's last op and the hosts by who waits for them. In the twin the same
    op is missing on nobody."""
    fault, twin = two(folder)
    calls = programs(tp, dp, n_steps, n_layers)
    stop = (n_layers + 1) * (n_steps - 1)
    job = FlightJob(grid(tp, dp), dict(calls), host_stops={culprit: stop}).play()
    write_dumps(fault, job, is_json=is_json)
    write_dumps(twin, FlightJob(grid(tp, dp), calls).play(), is_json=is_json)
    for place in (fault, twin):
        for rank in range(tp * dp):
            lines = init_lines(f"0x7f{rank:x}", rank, tp * dp, comm_hash="0xab", end=True)
            head = (
                f"gpu-{rank // per_node}:{900 + rank}:{950 + rank} [{rank % per_node}] NCCL INFO "
            )
            (place / f"nccl_rank_{rank}.log").write_text(
                "".join(head + one + "\n" for one in lines)
            )
    evidence = gather([fault]).job
    counters = tuple(
        CounterSeries(
            host=f"gpu-{node}", device="gpu0", counter=name, unit=unit, times_ns=(0, 60 * S),
            values=values,
        )
        for node in range(tp * dp // per_node)
        for name, unit, values in (
            ("power", "W", (480.0, 71.0)), ("utilization", "%", (97.0, 100.0)),
        )
    )  # fmt: skip
    hints = (told.GROUP_BEHIND, told.HOSTS_BEHIND, told.SPINNING)
    expected = Expected((Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP), (culprit,), told=hints)
    return Scene(replace(evidence, counters=counters), expected, twin)


def shortest_limit(
    folder: Path, *, tp: int, dp: int, culprit: int, limit_ms: int, is_own_group_logged: bool,
    has_time: bool,
) -> Scene:  # fmt: skip
    """The data groups have the shorter limit and print first, but the chain begins in the tensor
    group whose member is missing (C45). In the twin only the prints are there: nobody is named."""
    fault, twin = two(folder)
    calls = programs(tp, dp, 3, 2)
    job = FlightJob(grid(tp, dp), calls, host_stops={culprit: 7}).play()
    write_dumps(fault, job)
    follower = next(rank for rank in range(tp * dp) if rank // tp == culprit // tp != rank)
    waiting = next(
        r for r in range(tp * dp) if r % tp == follower % tp and r // tp != culprit // tp
    )
    own = next(rank for rank in range(tp * dp) if rank // tp == culprit // tp and rank != culprit)
    for place in (fault, twin):
        _prints(place, waiting, 1 + dp + waiting % tp, "mesh_dp", limit_ms, 1 if has_time else 0)
        if is_own_group_logged:
            _prints(place, own, 1 + culprit // tp, "mesh_tp", 4 * limit_ms, 5 if has_time else 0)
    expected = Expected(
        (Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP), (culprit,), told=(told.PRINTED_FIRST,)
    )
    return Scene(fault, expected, twin)


def _prints(folder: Path, rank: int, group: int, desc: str, limit_ms: int, minute: int) -> None:
    stamp = f"2026-03-01T12:{minute:02d}:00.125Z " if minute else ""
    head = f"{stamp}[rank{rank}]:"
    work = f"WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)={limit_ms})"
    lines = [
        f"{head}[Rank {rank}] Watchdog caught collective operation timeout: {work} ran for"
        f" {limit_ms + 40} milliseconds before timing out.",
        f"{head}[PG ID 1 PG GUID {group}({desc}) Rank 0] Timeout at NCCL work: 3, last enqueued"
        " NCCL work: 3, last completed NCCL work: 2.",
    ]
    (folder / f"rank_{rank}.stderr.log").write_text("\n".join(lines) + "\n")


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        44,
        "one rank of many groups",
        absent_rank,
        variants(
            {"tp": 4, "dp": 4, "culprit": 9, "n_steps": 2, "n_layers": 2, "per_node": 4,
             "is_json": False},
            {"tp": 2, "dp": 8, "culprit": 0, "n_steps": 3, "n_layers": 1, "per_node": 8,
             "is_json": True},
            {"tp": 8, "dp": 3, "culprit": 23, "n_steps": 5, "n_layers": 3, "per_node": 8,
             "is_json": False},
        ),
    ),
    FieldCase(
        45,
        "the group with the shortest limit",
        shortest_limit,
        variants(
            {"tp": 2, "dp": 4, "culprit": 3, "limit_ms": 60_000, "is_own_group_logged": False,
             "has_time": True},
            {"tp": 4, "dp": 2, "culprit": 0, "limit_ms": 1_800_000, "is_own_group_logged": True,
             "has_time": True},
            {"tp": 2, "dp": 8, "culprit": 12, "limit_ms": 600_000, "is_own_group_logged": False,
             "has_time": False},
        ),
    ),
)  # fmt: skip
