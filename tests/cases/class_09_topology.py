"""Class 9: direct access between GPUs, hidden topology, CPU masks, versions of two runs."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from msgspec.structs import replace

from comminsight.diagnosis import codes_link as codes
from comminsight.model.host_facts import (
    DevicePath,
    HostDevice,
    HostFacts,
    NumaNode,
    NvLinkState,
    PciBridge,
)
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.builders.host_files import nvlink
from tests.builders.nccl_job import NcclJob
from tests.cases.class_07_bandwidth import row, run_of
from tests.cases.field_case import Expected, FieldCase, Scene


def stuck_on_one_node(folder: Path, n_ranks: int, transport: str, op: str) -> JobEvidence:
    """All ranks of a node in their first op, with the channels that they made."""
    world = {"0": Group("default_pg", tuple(range(n_ranks)))}
    programs = {rank: [Call("0", op, (2048,))] for rank in range(n_ranks)}
    folder.mkdir()
    write_dumps(folder, FlightJob(world, programs, dead={(0, 0)}).play())
    job = NcclJob(1, n_ranks)
    for rank in range(n_ranks):
        peer = (rank + 1) % n_ranks
        job.info(rank, 1, f"Channel 00/0 : {rank}[{rank}] -> {peer}[{peer}] via {transport}")
    return job.evidence(folder)


def bridges(job: NcclJob, *, is_redirecting: bool) -> tuple[PciBridge, ...]:
    return tuple(
        PciBridge(
            host=job.host(0), bus_id=f"0000:{2 + gpu:02x}:00.0", is_redirecting=is_redirecting,
            below=(f"0000:{job.bus(gpu) >> 12:02x}:00.0",),
        )
        for gpu in range(job.per_node)
    )  # fmt: skip


def access_control(folder: Path, *, n_ranks: int, transport: str, other: str, op: str) -> Scene:
    """C75: all stand in an op over direct access, below bridges that redirect. In the twin they use
    shared memory, and the bridges explain nothing."""
    hosts = HostFacts(bridges=bridges(NcclJob(1, n_ranks), is_redirecting=True))
    fault = stuck_on_one_node(folder / "fault", n_ranks, transport, op)
    twin = stuck_on_one_node(folder / "twin", n_ranks, other, op)
    told = (codes.P2P_IN_USE, codes.REDIRECTS, codes.ACCESS_CONTROL_OFF)
    return Scene(
        replace(fault, hosts=hosts),
        Expected((Cause.P2P_BLOCKED,), (), told=told, places=("node0",)),
        replace(twin, hosts=hosts),
        Expected((Cause.ALL_PRESENT_STUCK,)),
    )


def by_path(
    folder: Path, *, n_gpus: int, per_switch: int, near: str, far: str, is_stuck: bool
) -> Scene:
    """C76: pairs under one switch fail, all others pass. In the twin a pair of the other kind fails
    too: the path does not explain it."""
    paths = [
        DevicePath(
            host="node0", device=f"gpu{a}", other=f"gpu{b}",
            path=near if a // per_switch == b // per_switch else far,
            is_working=a // per_switch != b // per_switch,
        )
        for a, b in combinations(range(n_gpus), 2)
    ]  # fmt: skip
    failing_far = next(i for i, path in enumerate(paths) if path.path == far)
    mixed = list(paths)
    mixed[failing_far] = replace(mixed[failing_far], is_working=False)
    job = JobEvidence()
    if is_stuck:
        job = stuck_on_one_node(folder / "dumps", n_gpus, "P2P/IPC", "all_reduce")
    told = (codes.PAIRS_FAIL, codes.PAIRS_WORK)
    return Scene(
        replace(job, hosts=HostFacts(paths=tuple(paths))),
        Expected((Cause.P2P_BLOCKED,), (), told=told, places=("node0",)),
        replace(job, hosts=HostFacts(paths=tuple(mixed))),
        Expected((Cause.ALL_PRESENT_STUCK,)) if is_stuck else Expected(),
    )


def hidden_tree(folder: Path, *, n_gpus: int, n_nics: int, host: str, n_nodes: int) -> Scene:
    """C77: a virtual machine shows neither switches nor NUMA, and GPU Direct is off. In the twin
    the same lines come from a machine that shows them."""
    job = NcclJob(n_nodes, 2, host)
    for rank in range(job.size):
        job.info(rank, 1, "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'")

    def devices(*, is_shown: bool) -> tuple[HostDevice, ...]:
        found = []
        for name, count, is_nic in (("gpu", n_gpus, False), ("mlx5_", n_nics, True)):
            found += [
                HostDevice(
                    host=job.host(0), device=f"{name}{i}", is_nic=is_nic,
                    numa_node=i % 2 if is_shown else -1, is_virtual=not is_shown,
                    switches=(f"0000:{1 + i // 2:02x}:00.0",) if is_shown else (),
                )
                for i in range(count)
            ]  # fmt: skip
        return tuple(found)

    evidence = job.evidence(folder / "logs")
    told = (codes.NO_SWITCH, codes.GDR_OFF, codes.GIVE_TREE)
    place = job.host(0).partition(".")[0]
    return Scene(
        replace(evidence, hosts=HostFacts(devices=devices(is_shown=False))),
        Expected((Cause.TOPO_BOTTLENECK,), (), told=told, places=(place,)),
        replace(evidence, hosts=HostFacts(devices=devices(is_shown=True))),
    )


def half_seated(folder: Path, *, n_gpus: int, gpu: int, n_links: int, n_down: int) -> Scene:
    """C78: a job freezes, and links of one GPU are down. In the twin the same number of links is
    down on each: they were never connected."""

    def files(name: str, odd: set[int]) -> Path:
        place = folder / name
        stuck_on_one_node(place, n_gpus, "P2P/IPC", "all_reduce")
        states = [
            NvLinkState(host="node0", device=f"gpu{g}", link=i, is_up=not (g in odd and i < n_down))
            for g in range(n_gpus)
            for i in range(n_links)
        ]
        (place / "node0.nvlink").write_text(nvlink(states))
        return place

    told = (codes.NVLINK_DOWN, codes.SEAT_BRIDGE)
    return Scene(
        files("fault", {gpu}),
        Expected((Cause.P2P_BLOCKED, Cause.SLOW_LINK), (), told=told, places=(f"node0/gpu{gpu}",)),
        files("twin", set(range(n_gpus))),
        Expected((Cause.ALL_PRESENT_STUCK,)),
    )


def other_cores(folder: Path, *, here: str, there: str, cores: int, is_known: bool) -> Scene:
    """C79: slower in a container, where the threads are bound to other cores. In the twin the masks
    are equal, and nothing tells why it is slower."""

    def run(name: str, mask: str, gbs: float) -> JobEvidence:
        job = NcclJob(1, 2)
        for rank in range(job.size):
            job.info(rank, 1, f"Setting affinity for GPU {rank} to {mask}")
        return replace(job.evidence(folder / name), bandwidth=(row(gbs),))

    slow, fast, same = run("in", here, 40.0), run("out", there, 180.0), run("same", here, 180.0)
    hosts = HostFacts()
    if is_known:
        hosts = HostFacts(
            devices=tuple(
                HostDevice(host="node0", device=f"gpu{i}", is_nic=False, numa_node=0)
                for i in range(2)
            ),
            numa_nodes=(NumaNode(host="node0", numa_node=0, cores=tuple(range(cores))),),
        )
    told = (codes.MASK_DIFFERS, codes.MASK_NOT_LOCAL if is_known else codes.MISSING_NUMA)
    return Scene(
        replace(slow, hosts=hosts, baseline=fast),
        Expected((Cause.AFFINITY_BAD,), (), told=told, places=("node0",)),
        replace(slow, hosts=hosts, baseline=same),
        Expected(told=(codes.RUN_SLOWER, codes.MISSING_DIFFERENCE)),
    )


def other_version(
    folder: Path, *, version: str, other: str, channels: tuple[int, int], gbs: tuple[float, float]
) -> Scene:
    """C80: slower with another version, which plans fewer channels. In the twin a setting differs
    as well."""

    def plan(n: int) -> str:
        return (
            f"Pattern 4, crossNic 0, nChannels {n}, bw {n}.000000/{n}.000000, type NVL/PXB, "
            "sameChannels 1"
        )

    slow = run_of(folder, "slow", {}, [row(gbs[0])], version, plan(channels[0]))
    fast = run_of(folder, "fast", {}, [row(gbs[1])], other, plan(channels[1]))
    set_too = run_of(folder, "set", {"NCCL_ALGO": "Ring"}, [row(gbs[1])], other)
    told = (codes.VERSION_DIFFERS, codes.GRAPH_DIFFERS)
    return Scene(
        replace(slow, baseline=fast),
        Expected((Cause.VERSION_SKEW,), (), told=told),
        replace(slow, baseline=set_too),
        Expected(told=(codes.MISSING_ONE_DIFFERENCE,)),
    )


def switched_off(folder: Path, *, n_gpus: int, n_links: int, value: str) -> Scene:
    """C81: direct access is off although all links are up: a warning. In the twin there is no link
    that is up."""
    job = NcclJob(1, n_gpus)
    for rank in range(n_gpus):
        job.info(rank, 0, f"NCCL_P2P_DISABLE set by environment to {value}.")
    evidence = job.evidence(folder / "logs")

    def links(*, is_up: bool) -> HostFacts:
        return HostFacts(
            nvlinks=tuple(
                NvLinkState(host="node0", device=f"gpu{g}", link=i, is_up=is_up)
                for g in range(n_gpus)
                for i in range(n_links)
            )
        )

    return Scene(
        replace(evidence, hosts=links(is_up=True)),
        Expected(told=(codes.P2P_OFF, codes.P2P_ON, codes.MISSING_PEER_MATRIX)),
        replace(evidence, hosts=links(is_up=False)),
    )


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        75, "access control above the GPUs", access_control,
        (
            {"n_ranks": 2, "transport": "P2P/IPC", "other": "SHM", "op": "all_reduce"},
            {"n_ranks": 8, "transport": "P2P/CUMEM", "other": "SHM/direct/direct",
             "op": "broadcast"},
            {"n_ranks": 4, "transport": "P2P/direct pointer", "other": "NET/Socket/0",
             "op": "all_gather"},
        ),
    ),
    FieldCase(
        76, "pairs under one switch fail", by_path,
        (
            {"n_gpus": 4, "per_switch": 2, "near": "PIX", "far": "SYS", "is_stuck": True},
            {"n_gpus": 8, "per_switch": 4, "near": "PXB", "far": "NODE", "is_stuck": False},
            {"n_gpus": 6, "per_switch": 3, "near": "PIX", "far": "PHB", "is_stuck": True},
        ),
    ),
    FieldCase(
        77, "a machine that hides its switches", hidden_tree,
        (
            {"n_gpus": 8, "n_nics": 8, "host": "vm{}", "n_nodes": 1},
            {"n_gpus": 4, "n_nics": 2, "host": "node{}", "n_nodes": 2},
            {"n_gpus": 2, "n_nics": 4, "host": "i-{:04}.zone", "n_nodes": 3},
        ),
    ),
    FieldCase(
        78, "a bridge that is not seated", half_seated,
        (
            {"n_gpus": 2, "gpu": 0, "n_links": 2, "n_down": 1},
            {"n_gpus": 8, "gpu": 6, "n_links": 18, "n_down": 4},
            {"n_gpus": 4, "gpu": 3, "n_links": 4, "n_down": 4},
        ),
    ),
    FieldCase(
        79, "threads on other cores", other_cores,
        (
            {"here": "48-95", "there": "0-47", "cores": 48, "is_known": False},
            {"here": "ffff0000,00000000", "there": "0000ffff", "cores": 16, "is_known": True},
            {"here": "64-127,192-255", "there": "0-63", "cores": 64, "is_known": True},
        ),
    ),
    FieldCase(
        80, "another version", other_version,
        (
            {"version": "2.21.5+cuda12.4", "other": "2.20.5+cuda12.4", "channels": (2, 16),
             "gbs": (41.0, 365.0)},
            {"version": "2.27.3+cuda12.9", "other": "2.26.2+cuda12.6", "channels": (8, 24),
             "gbs": (90.0, 180.0)},
            {"version": "2.18.1+cuda12.0", "other": "2.19.3+cuda12.2", "channels": (1, 4),
             "gbs": (5.0, 19.0)},
        ),
    ),
    FieldCase(
        81, "direct access switched off", switched_off,
        (
            {"n_gpus": 2, "n_links": 4, "value": "1"},
            {"n_gpus": 8, "n_links": 18, "value": "1"},
            {"n_gpus": 4, "n_links": 1, "value": "2"},
        ),
    ),
)  # fmt: skip
