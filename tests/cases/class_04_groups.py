"""Class 4: groups made unlike, circles of groups and messages, launches, the loader."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as told
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.hang import Stack, StackSource
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause
from comminsight.pipeline.job_evidence import gather
from tests.builders.flight_recorder import Call, FlightJob, Group, torch_pickle, write_dumps
from tests.cases.field_case import Expected, FieldCase, Scene

WORLD = "default_pg"


def two(folder: Path) -> tuple[Path, Path]:
    """Folders for the fault and for its twin."""
    fault, twin = folder / "fault", folder / "twin"
    fault.mkdir()
    twin.mkdir()
    return fault, twin


def world(n_ranks: int) -> dict[str, Group]:
    return {"0": Group(WORLD, tuple(range(n_ranks)))}


def write(folder: Path, documents: Mapping[int, dict[str, Any]], *, is_json: bool = False) -> Path:
    """Dumps of one job from their documents."""
    for rank, document in documents.items():
        if is_json:
            for entry in document["entries"]:
                entry.pop("frames", None)
        data = json.dumps(document).encode() if is_json else torch_pickle(document)
        (folder / f"rank_{rank}").write_bytes(data)
    return folder


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
        programs = {}
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


def facing_sends(folder: Path, *, size: int, n_before: int, pairs: int, is_json: bool) -> Scene:
    """Both ranks of a pair send before they receive (C26). The twin: one receives first."""
    fault, twin = two(folder)
    n_ranks = 2 * pairs
    before = [Call("0", "all_reduce")] * n_before

    def transfer(op: str, rank: int) -> Call:
        return Call("0", op, (size,), peer=rank ^ 1)

    programs = {
        rank: [*before, transfer("send", rank), transfer("recv", rank)] for rank in range(n_ranks)
    }
    stops = dict.fromkeys(range(2), n_before)  # only the first pair's messages are too large
    job = FlightJob(world(n_ranks), dict(programs), device_stops=stops).play()
    write_dumps(fault, job, is_json=is_json)
    for rank in range(1, n_ranks, 2):
        programs[rank] = [*before, transfer("recv", rank), transfer("send", rank)]
    write_dumps(twin, FlightJob(world(n_ranks), programs).play(), is_json=is_json)
    expected = Expected((Cause.P2P_CYCLE,), (0, 1), told=(told.CALL_ORDER, told.ONE_GROUP_CALL))
    return Scene(fault, expected, twin)


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
    causes, culprits = (Cause.ORDER_INVERSION,), odd
    if 2 * len(odd) >= n_ranks and not n_before:  # equal camps, and no habit that one of them left
        causes, culprits = (Cause.CROSS_GROUP_CYCLE, Cause.ORDER_INVERSION), (0, min(odd))
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


def stage_exchange(folder: Path, *, n_stages: int, size: int, is_json: bool) -> Scene:
    """Every stage exchanges shapes with both neighbours in one batch, and none of them ends (C29).
    In the twin the last stage has not come: the others wait for it, in no circle."""
    fault, twin = two(folder)
    stages = range(n_stages)
    programs = {stage: neighbour_calls(stage, n_stages, size) for stage in stages}
    stops = dict.fromkeys(stages, 1)
    job = FlightJob(world(n_stages), dict(programs), device_stops=stops).play()
    write(fault, {rank: _batched(job.dump(rank)) for rank in stages}, is_json=is_json)
    late = FlightJob(world(n_stages), programs, host_stops={n_stages - 1: 1}).play()
    write(twin, {rank: _batched(late.dump(rank)) for rank in stages}, is_json=is_json)
    expected = Expected((Cause.P2P_CYCLE,), tuple(stages), told=(told.PAIRS_APART,))
    absent = Expected((Cause.RANK_NOT_ENTERED, Cause.P2P_UNMATCHED), (n_stages - 1,))
    return Scene(fault, expected, twin, absent)


def neighbour_calls(stage: int, n_stages: int, size: int) -> list[Call]:
    peers = [peer for peer in (stage - 1, stage + 1) if 0 <= peer < n_stages]
    exchange = [Call("0", op, (size,), peer=peer) for peer in peers for op in ("send", "recv")]
    return [Call("0", "all_reduce"), *exchange]


def _batched(document: dict[str, Any]) -> dict[str, Any]:
    """All sends and receives under one number, as a batch records them."""
    for entry in document["entries"]:
        if entry["is_p2p"]:
            entry["p2p_seq_id"] = 1
    return document


def stage_schedule(folder: Path, *, n_before: int, size: int, is_json: bool) -> Scene:
    """A patched schedule lets both of two stages send before either receives (C31). The twin is the
    schedule without the patch."""
    fault, twin = two(folder)
    send = [Call("0", "send", (size,), peer=1), Call("0", "send", (size,), peer=0)]
    recv = [Call("0", "recv", (size,), peer=1), Call("0", "recv", (size,), peer=0)]
    before = {0: [send[0]] * n_before, 1: [recv[1]] * n_before}
    programs = {0: [*before[0], send[0], recv[0]], 1: [*before[1], send[1], recv[1]]}
    stops = dict.fromkeys(range(2), n_before)
    job = FlightJob(world(2), dict(programs), device_stops=stops).play()
    write_dumps(fault, job, is_json=is_json)
    programs[1] = [*before[1], recv[1], send[1]]
    write_dumps(twin, FlightJob(world(2), programs).play(), is_json=is_json)
    expected = Expected((Cause.P2P_CYCLE,), (0, 1), told=(told.CALL_ORDER, told.ONE_GROUP_CALL))
    return Scene(fault, expected, twin)


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


def compiling_stage(
    folder: Path, *, n_stages: int, frame: str, op: str, n_before: int, n_world_ops: int
) -> Scene:
    """Only the first stage compiles, which takes a collective over all; the others wait for what it
    sends (C33). The twin has the program without compiler, and runs."""
    fault, twin = two(folder)
    groups = world(n_stages) | {"1": Group("pipeline", tuple(range(n_stages)))}
    stages: dict[int, list[Call]] = {}
    for stage in range(n_stages):
        recv = [Call("1", "recv", (64,), peer=stage - 1)] * (stage > 0)
        send = [Call("1", "send", (64,), peer=stage + 1)] * (stage < n_stages - 1)
        stages[stage] = [*recv, *send]
    before = [Call("0", "all_reduce")] * n_world_ops
    healthy = {stage: [*before, *calls * n_before] for stage, calls in stages.items()}
    write_dumps(twin, FlightJob(dict(groups), dict(healthy)).play())
    programs = {stage: [*healthy[stage], *calls] for stage, calls in stages.items()}
    programs[0] = [*healthy[0], Call("0", op)]
    job = FlightJob(groups, programs).play()
    documents = {rank: job.dump(rank) for rank in range(n_stages)}
    name, place = frame.split()
    documents[0]["entries"][-1]["frames"] += [{"name": name, "filename": place, "line": 77}]
    write(fault, documents)
    expected = Expected((Cause.CROSS_GROUP_CYCLE,), (0, 1), told=(told.COMPILER,))
    return Scene(fault, expected, twin)


def variants(*rows: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return rows


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
        26,
        "sends that face each other",
        facing_sends,
        variants(
            {"size": 1 << 25, "n_before": 0, "pairs": 1, "is_json": False},
            {"size": 4096, "n_before": 5, "pairs": 2, "is_json": True},
            {"size": 7, "n_before": 1, "pairs": 3, "is_json": False},
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
        29,
        "shapes exchanged by all stages at once",
        stage_exchange,
        variants(
            {"n_stages": 4, "size": 3, "is_json": False},
            {"n_stages": 8, "size": 1, "is_json": True},
            {"n_stages": 5, "size": 16, "is_json": False},
        ),
    ),
    FieldCase(
        31,
        "both stages send first",
        stage_schedule,
        variants(
            {"n_before": 1, "size": 1 << 25, "is_json": False},
            {"n_before": 0, "size": 100, "is_json": True},
            {"n_before": 4, "size": 1 << 20, "is_json": False},
        ),
    ),
    FieldCase(
        33,
        "one stage compiles",
        compiling_stage,
        variants(
            {
                "n_stages": 4,
                "frame": "compile_fx torch/_inductor/compile_fx.py",
                "op": "all_gather",
                "n_before": 1,
                "n_world_ops": 0,
            },
            {
                "n_stages": 2,
                "frame": "_compile /opt/py/torch/_dynamo/convert_frame.py",
                "op": "all_reduce",
                "n_before": 3,
                "n_world_ops": 2,
            },
            {
                "n_stages": 6,
                "frame": "aot_module torch/_functorch/aot_autograd.py",
                "op": "broadcast",
                "n_before": 2,
                "n_world_ops": 0,
            },
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
