"""Class 4, sends and receives: circles, pairs made at first use, messages that can be swapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from comminsight.diagnosis import codes_groups as told
from comminsight.model.verdict import Cause
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.cases.field_case import Expected, FieldCase, Scene
from tests.cases.group_scenes import init_lines, nccl_lines, two, variants, world, write


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


def pairs_at_first_use(
    folder: Path, *, n_ranks: int, before: int, size: int, is_apart: bool
) -> Scene:
    """Pairs are made at first use, several at a time, and none of them is complete (C30). In the
    twin one pair is open alone: its sender has not come, and nothing tells more."""
    fault, twin = two(folder)
    for place in (fault, twin):
        open_ranks = range(n_ranks) if place == fault else range(1, 2)
        for rank in range(n_ranks):
            lines = init_lines(f"0x7e{rank:02x}", rank, n_ranks, comm_hash="0xbb", end=True)
            if rank in open_ranks:
                lines += init_lines(
                    f"0x7d{rank:02x}", rank % 2, 2, comm_hash=f"0xcc{rank // 2}", end=False
                )
            nccl_lines(place, rank, lines, is_apart=is_apart)
    programs = {
        rank: [Call("0", "all_reduce")] * before
        + ([Call("0", "recv", (size,), peer=rank - 1)] if rank % 2 else [])
        for rank in range(n_ranks)
    }
    write_dumps(fault, FlightJob(world(n_ranks), dict(programs)).play())
    for rank in range(2, n_ranks):
        programs[rank] = programs[rank][:before]
    write_dumps(twin, FlightJob(world(n_ranks), programs).play())
    expected = Expected((Cause.INIT_STUCK,), tuple(range(n_ranks)), told=(told.INIT_OPEN,))
    alone = Expected((Cause.RANK_NOT_ENTERED, Cause.P2P_UNMATCHED), (0,))
    return Scene(fault, expected, twin, alone)


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


def swapped_messages(
    folder: Path, *, sizes: tuple[int, ...], received: tuple[int, ...], n_before: int,
    is_json: bool,
) -> Scene:  # fmt: skip
    """Two stages with several chunks each: messages of one pair are taken in another order (C32).
    In the twin they are all of one size, so nothing tells which is which."""
    fault, twin = two(folder)
    before = [Call("0", "all_reduce")] * n_before
    alike = (sizes[0],) * len(sizes)
    for place, sent, taken in ((fault, sizes, received), (twin, alike, alike)):
        programs = {
            0: [*before, *(Call("0", "send", (size,), peer=1) for size in sent)],
            1: [*before, *(Call("0", "recv", (size,), peer=0) for size in taken)],
        }
        stops = dict.fromkeys(range(2), n_before)
        write_dumps(
            place, FlightJob(world(2), programs, device_stops=stops).play(), is_json=is_json
        )
    expected = Expected((Cause.P2P_UNMATCHED,), (0, 1), told=(told.P2P_SIZES, told.TAG_MESSAGES))
    unsure = Expected((Cause.ALL_PRESENT_STUCK,), (), told=(told.AMBIGUOUS, told.MISSING_MATCH))
    return Scene(fault, expected, twin, unsure)


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


CASES: tuple[FieldCase, ...] = (
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
        30,
        "pairs made at first use",
        pairs_at_first_use,
        variants(
            {"n_ranks": 4, "before": 2, "size": 3, "is_apart": True},
            {"n_ranks": 8, "before": 1, "size": 1 << 20, "is_apart": False},
            {"n_ranks": 6, "before": 5, "size": 77, "is_apart": True},
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
        32,
        "messages of one pair in another order",
        swapped_messages,
        variants(
            {"sizes": (3, 5), "received": (5, 3), "n_before": 1, "is_json": False},
            {"sizes": (1024, 16, 64), "received": (16, 1024, 64), "n_before": 0, "is_json": True},
            {"sizes": (8, 8, 2), "received": (8, 2, 8), "n_before": 4, "is_json": False},
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
)
