"""Class 4, groups and streams: made unlike, split, used in another order; launches, the loader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as told
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.hang import Stack, StackSource
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause
from comminsight.pipeline.job_evidence import gather
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.cases.field_case import Expected, FieldCase, Scene
from tests.cases.group_scenes import init_lines, nccl_lines, two, variants, world, write

WORLD = "default_pg"


def unlike_groups(folder: Path, **variant: Any) -> Scene:
    """The two ways in which C23 happens."""
    return (
        own_groups_only(folder, **variant)
        if "parts" in variant
        else skipped_group(folder, **variant)
    )


def own_groups_only(
    folder: Path, *, parts: Sequence[tuple[int, ...]], waiting: int, op: str, is_json: bool
) -> Scene:
    """Each rank makes only the group that it is in, so all of them have the same number (C23). The
    twin splits the world into the same parts by one call, which shares the name rightly."""
    fault, twin = two(folder)
    n_ranks = sum(map(len, parts))
    for place, desc in ((fault, "undefined"), (twin, f"{WORLD}:split:1")):
        groups = world(n_ranks) | {f"1.{k}": Group(desc, part) for k, part in enumerate(parts)}
        programs: dict[int, list[Call]] = {}
        for k, part in enumerate(parts):
            program = [Call("0", "all_reduce")] * 3 + [Call(f"1.{k}", op)] * (k == waiting)
            programs |= dict.fromkeys(part, program)
        job = FlightJob(groups, programs, device_stops=dict.fromkeys(parts[waiting], 3)).play()
        write(place, {rank: _renamed(job.dump(rank)) for rank in programs}, is_json=is_json)
    expected = Expected((Cause.GROUP_MISUSE,), tuple(range(n_ranks)), told=(told.GROUP_CLAIM,))
    stuck = Expected((Cause.ALL_PRESENT_STUCK,), ())
    return Scene(fault, expected, twin, stuck)


def _renamed(document: dict[str, Any]) -> dict[str, Any]:
    """Groups ``1.0``, ``1.1`` … are all called ``1``, as each process counts them itself."""
    named = {}
    for name, group in document["pg_config"].items():
        short = name.partition(".")[0]
        named[short] = group | {"name": short}
    for entry in document["entries"]:
        name, desc = entry["process_group"]
        entry["process_group"] = (name.partition(".")[0], desc)
    return document | {"pg_config": named}


def skipped_group(folder: Path, *, n_ranks: int, culprit: int, op: str, is_json: bool) -> Scene:
    """One rank does not make a group that it is no member of: its next group gets the number that
    another one has elsewhere (C23, the other half). The twin makes both everywhere."""
    fault, twin = two(folder)
    pair = tuple(rank for rank in range(n_ranks) if rank != culprit)
    groups = world(n_ranks) | {
        "1": Group("undefined", pair), "2": Group("undefined", tuple(range(n_ranks))),
    }  # fmt: skip
    program = [Call("0", "all_reduce"), Call("2", op)]
    dumps = FlightJob(groups, dict.fromkeys(range(n_ranks), program)).play()
    write(twin, {rank: dumps.dump(rank) for rank in range(n_ranks)}, is_json=is_json)
    stops = dict.fromkeys(range(n_ranks), 1)
    stuck = FlightJob(groups, dict.fromkeys(range(n_ranks), program), device_stops=stops).play()
    documents = {rank: stuck.dump(rank) for rank in range(n_ranks)}
    odd = documents[culprit]
    odd["pg_config"] = {
        "0": odd["pg_config"]["0"], "1": odd["pg_config"]["2"] | {"name": "1"},
    }  # fmt: skip
    for entry in odd["entries"]:
        name, desc = entry["process_group"]
        entry["process_group"] = ("1" if name == "2" else name, desc)
    write(fault, documents, is_json=is_json)
    expected = Expected((Cause.GROUP_MISUSE,), (culprit,), told=(told.GROUP_CLAIM,))
    return Scene(fault, expected, twin)


def split_against_barrier(
    folder: Path, *, n_ranks: int, members: tuple[int, ...], op: str, is_apart: bool
) -> Scene:
    """Non-members of a new group split the parent at once, members would at first use, and wait in
    an op on the parent before (C24). In the twin the split is complete and all are in the op."""
    fault, twin = two(folder)
    splitting = tuple(rank for rank in range(n_ranks) if rank not in members)
    for place in (fault, twin):
        for rank in range(n_ranks):
            parent, child = f"0x7f{rank:02x}00", f"0x7f{rank:02x}88"
            lines = init_lines(parent, rank, n_ranks, comm_hash="0xaa01", end=True)
            if rank in splitting:
                lines += init_lines(
                    child, rank, n_ranks, comm_hash="0xaa02", end=place == twin, split_of=parent
                )
            nccl_lines(place, rank, lines, is_apart=is_apart)
    programs = {rank: [Call("0", "all_reduce"), Call("0", op)] for rank in range(n_ranks)}
    stuck = FlightJob(world(n_ranks), dict(programs), host_stops=dict.fromkeys(splitting, 1)).play()
    write_dumps(fault, stuck)
    write_dumps(twin, FlightJob(world(n_ranks), programs).play())
    expected = Expected((Cause.INIT_STUCK,), tuple(range(n_ranks)), told=(told.SPLIT_OF,))
    return Scene(fault, expected, twin)


def wrong_roots(
    folder: Path, *, members: tuple[int, ...], odd: tuple[int, ...], root: int, op: str,
    n_before: int,
) -> Scene:  # fmt: skip
    """Some ranks of a sub-group take its ranks for global ones (C25). In the twin all name the same
    root, which is one of the group."""
    fault, twin = two(folder)
    size = len(members)
    for place in (fault, twin):
        for comm_rank, rank in enumerate(members):
            comm = f"0x7c{rank:02x}"
            named = root if rank in odd and place == fault else 0
            lines = init_lines(comm, comm_rank, size, comm_hash="0xdd", end=True)
            lines += [_coll("AllReduce", 64, 0, comm, size)] * n_before
            lines += [_coll(op, 4096, named, comm, size)]
            lines += [_coll("AllReduce", 8, 0, comm, size)] * (place == twin)
            nccl_lines(place, rank, [f"NCCL_DEBUG rank {rank}", *lines], is_apart=True)
    hints = (told.ROOT_OUTSIDE, told.ROOT_NAMED, told.CHECK_ROOT) if root >= size else ()
    expected = Expected((Cause.ROOT_MISMATCH,), odd, told=hints)
    return Scene(fault, expected, twin)


def _coll(op: str, count: int, root: int, comm: str, size: int) -> str:
    return (
        f"{op}: opCount 0 sendbuff 0x7f1 recvbuff 0x7f2 count {count} datatype 7 op 0 root {root}"
        f" comm {comm} [nranks={size}] stream 0x55"
    )


def swapped_launches(
    folder: Path, *, n_ranks: int, odd: tuple[int, ...], n_before: int, is_json: bool
) -> Scene:
    """Some ranks launch the ops of two groups in another order (C27)."""
    fault, twin = two(folder)
    members = tuple(range(n_ranks))
    groups = world(n_ranks) | {"1": Group("mesh_a", members), "2": Group("mesh_b", members)}
    first, second = Call("1", "all_reduce", (512,)), Call("2", "all_reduce", (64,))
    before = [first, second] * n_before
    usual, other = [*before, first, second], [*before, second, first]
    programs = {rank: other if rank in odd else usual for rank in members}
    write_dumps(fault, FlightJob(dict(groups), programs).play(), is_json=is_json)
    healthy = FlightJob(groups, dict.fromkeys(members, other)).play()
    write_dumps(twin, healthy, is_json=is_json)
    causes: tuple[Cause, ...] = (Cause.ORDER_INVERSION,)
    culprits = odd
    if 2 * len(odd) >= n_ranks and not n_before:  # equal camps, and no habit that one of them left
        causes, culprits = (Cause.CROSS_GROUP_CYCLE, *causes), (0, min(odd))
    return Scene(fault, Expected(causes, culprits, told=(told.CALL_ORDER,)), twin)


def resident_kernel(folder: Path, *, n_ranks: int, kernel: str, op: str, n_before: int) -> Scene:
    """Half of the ranks gather before a hand-written exchange, half after (C28). In the twin that
    kernel runs on all of them, so it is not what keeps the odd ranks away."""
    members = tuple(range(n_ranks))
    odd = members[1::2]
    programs = {rank: [Call("0", "all_reduce")] * n_before + [Call("0", op)] for rank in members}
    stops = dict.fromkeys(odd, n_before)
    job = FlightJob(world(n_ranks), programs, host_stops=stops).play()
    write_dumps(folder, job)
    evidence = gather([folder]).job
    fault = replace(evidence, activities=tuple(open_kernel(rank, kernel) for rank in odd))
    twin = replace(evidence, activities=tuple(open_kernel(rank, kernel) for rank in members))
    expected = Expected((Cause.ORDER_INVERSION,), odd, told=(told.OUTSIDE_KERNEL,))
    absent = Expected((Cause.RANK_NOT_ENTERED,), odd)
    return Scene(fault, expected, twin, absent)


def open_kernel(rank: int, name: str) -> Activity:
    return Activity(
        global_rank=rank, kind=ActivityKind.COMMUNICATION, name=name, start_ns=1_000, end_ns=0,
        stream=20, is_library=False,
    )  # fmt: skip


def launch_blocking(folder: Path, *, n_ranks: int, line: str, op: str, absent: int = -1) -> Scene:
    """Nobody is missing and nothing ends, and the environment makes launches blocking (C34). In the
    twin the flag is set as well, but a rank is missing: that is why they wait."""
    fault, twin = two(folder)
    programs = dict.fromkeys(range(n_ranks), [Call("0", op)] * 2)
    stuck = dict.fromkeys(range(n_ranks), 0)
    write_dumps(fault, FlightJob(world(n_ranks), dict(programs), device_stops=stuck).play())
    missing = absent % n_ranks
    job = FlightJob(world(n_ranks), programs, host_stops={missing: 1}).play()
    write_dumps(twin, job)
    for place in (fault, twin):
        (place / "environment.txt").write_text(f"PATH=/usr/bin\n{line}\nHOME=/root\n")
    hint = (told.BLOCKING_LAUNCH, told.UNSET_VARIABLE)
    expected = Expected((Cause.ALL_PRESENT_STUCK,), (), told=hint)
    other = Expected((Cause.RANK_NOT_ENTERED,), (missing,))
    return Scene(fault, expected, twin, other)


def first_kernel(folder: Path, *, n_ranks: int, loading: int, frame: str, op: str) -> Scene:
    """All are in the first op of the group, and one rank's native stack loads code (C35). The twin
    has no stacks: the hypothesis stays, and the stacks are asked for."""
    programs = {rank: [Call("0", op)] for rank in range(n_ranks)}
    stuck = dict.fromkeys(range(n_ranks), 0)
    write_dumps(folder, FlightJob(world(n_ranks), programs, device_stops=stuck).play())
    evidence = gather([folder]).job
    expected = Expected((Cause.ALL_PRESENT_STUCK,), (), told=(told.LOADER, told.LOAD_EAGERLY))
    asked = Expected((Cause.ALL_PRESENT_STUCK,), (), told=(told.MISSING_NATIVE_STACK,))
    return Scene(with_stack(evidence, loading, frame), expected, evidence, asked)


def with_stack(evidence: JobEvidence, rank: int, frame: str) -> JobEvidence:
    assert evidence.hang is not None
    text = (
        f"Thread 1: main\n    {frame}\n    cudaLaunchKernel (libcudart.so)\n    step (train.py:7)"
    )
    stack = Stack(global_rank=rank, pid=7, source=StackSource.PY_SPY, text=text)
    return replace(evidence, hang=replace(evidence.hang, stacks=(stack,)))


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        23,
        "groups made on some ranks only",
        unlike_groups,
        variants(
            {"parts": ((0, 3), (1, 2)), "waiting": 1, "op": "barrier", "is_json": False},
            {"parts": ((0, 1), (2, 3), (4, 5)), "waiting": 0, "op": "all_reduce", "is_json": True},
            {
                "parts": ((0, 2, 4, 6), (1, 3, 5, 7)),
                "waiting": 1,
                "op": "all_gather",
                "is_json": False,
            },
            {"n_ranks": 3, "culprit": 2, "op": "all_reduce", "is_json": False},
            {"n_ranks": 8, "culprit": 0, "op": "barrier", "is_json": True},
            {"n_ranks": 5, "culprit": 3, "op": "all_gather", "is_json": False},
        ),
    ),
    FieldCase(
        24,
        "a split against an op on the parent",
        split_against_barrier,
        variants(
            {"n_ranks": 2, "members": (0,), "op": "barrier", "is_apart": True},
            {"n_ranks": 8, "members": (3,), "op": "all_reduce", "is_apart": False},
            {"n_ranks": 6, "members": (0, 5), "op": "barrier", "is_apart": True},
        ),
    ),
    FieldCase(
        25,
        "ranks of the group taken for global ones",
        wrong_roots,
        variants(
            {
                "members": (4, 5, 6, 7),
                "odd": (6, 7),
                "root": 4,
                "op": "Broadcast",
                "n_before": 3,
            },
            {
                "members": (0, 2, 4),
                "odd": (4,),
                "root": 1,
                "op": "Reduce",
                "n_before": 0,
            },
            {
                "members": (8, 9, 10, 11, 12),
                "odd": (9,),
                "root": 8,
                "op": "Broadcast",
                "n_before": 40,
            },
        ),
    ),
    FieldCase(
        27,
        "two groups launched in another order",
        swapped_launches,
        variants(
            {"n_ranks": 2, "odd": (1,), "n_before": 6, "is_json": False},
            {"n_ranks": 8, "odd": (5,), "n_before": 1, "is_json": True},
            {"n_ranks": 6, "odd": (0, 4), "n_before": 2, "is_json": False},
            {"n_ranks": 4, "odd": (2, 3), "n_before": 0, "is_json": False},
        ),
    ),
    FieldCase(
        28,
        "a gather around a hand-written exchange",
        resident_kernel,
        variants(
            {"n_ranks": 4, "kernel": "dispatch", "op": "all_gather", "n_before": 2},
            {"n_ranks": 16, "kernel": "moe_combine_v2", "op": "all_reduce", "n_before": 1},
            {"n_ranks": 2, "kernel": "put_signal", "op": "reduce_scatter", "n_before": 7},
        ),
    ),
    FieldCase(
        34,
        "launches that block",
        launch_blocking,
        variants(
            {"n_ranks": 2, "line": "CUDA_LAUNCH_BLOCKING=1", "op": "all_reduce"},
            {
                "n_ranks": 16,
                "line": "export CUDA_LAUNCH_BLOCKING=1",
                "op": "broadcast",
                "absent": 0,
            },
            {"n_ranks": 5, "line": "CUDA_LAUNCH_BLOCKING=1", "op": "all_gather", "absent": 2},
        ),
    ),
    FieldCase(
        35,
        "code loaded at the first use",
        first_kernel,
        variants(
            {
                "n_ranks": 2,
                "loading": 1,
                "frame": "cuModuleLoadData (libcuda.so)",
                "op": "all_reduce",
            },
            {
                "n_ranks": 8,
                "loading": 0,
                "frame": "cuLibraryLoadData (libcuda.so.1)",
                "op": "all_gather",
            },
            {
                "n_ranks": 4,
                "loading": 3,
                "frame": "_dl_open (ld-linux-x86-64.so.2)",
                "op": "reduce_scatter",
            },
        ),
    ),
)
