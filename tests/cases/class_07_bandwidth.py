"""Class 7, bandwidth: losses, shared cards, ceilings, settings, racks, latency; and a mismatch that
only the transport tells."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from comminsight.diagnosis import codes_calls
from comminsight.diagnosis import codes_link as codes
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import CounterSeries, Link, LinkMap
from comminsight.model.host_facts import HostFacts, PortState
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause
from tests.builders.nccl_job import NcclJob
from tests.cases.field_case import Expected, FieldCase, Scene

MIB = 1 << 20


def curve(
    op: Op, slow_mib: tuple[int, ...], slow_gbs: float, best_gbs: float
) -> list[BandwidthRow]:
    """Bandwidth by size: latency below, the link above, and a hole at ``slow_mib``."""
    return [
        BandwidthRow(
            op=op, size_bytes=size * MIB,
            busbw_gbs=slow_gbs if size in slow_mib else best_gbs * size / (size + 4),
            hosts=("a", "b"),
        )
        for size in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    ]  # fmt: skip


def collapse(
    _: Path, *, slow_mib: tuple[int, ...], rises: bool, n_ports: int, op: Op, layer: str
) -> Scene:
    """C57: some sizes collapse on Ethernet; its loss counters rise on one port, or nowhere. The
    twin is InfiniBand, or a curve without a hole."""
    hosts = [f"h{i}" for i in range(n_ports)]
    ports = tuple(
        PortState(host=host, device="mlx5_0", link_layer="ethernet", rate_gbs=25) for host in hosts
    )
    counters = tuple(
        CounterSeries(
            host=host, device="mlx5_0", counter=name, unit="1", times_ns=(0, 10**9, 2 * 10**9),
            values=(5.0, 5.0, 90_005.0 if rises and host == hosts[1] else 5.0),
        )
        for host in hosts
        for name in ("out_of_sequence", "packet_seq_err")
    )  # fmt: skip
    links = LinkMap(
        links=tuple(Link(global_rank=i, host=host, device="mlx5_0") for i, host in enumerate(hosts))
    )
    fault = JobEvidence(
        bandwidth=tuple(curve(op, slow_mib, 0.4, 22.0)), counters=counters, links=links,
        hosts=HostFacts(ports=ports), world_size=n_ports,
    )  # fmt: skip
    if layer == "infiniband":
        same = tuple(replace(port, link_layer=layer) for port in ports)
        twin = replace(fault, hosts=HostFacts(ports=same))
    else:
        twin = replace(fault, bandwidth=tuple(curve(op, (), 0.4, 22.0)))
    told = (codes.COUNTERS_STILL, codes.MISSING_LOSS_COUNTERS)
    if rises:
        told = (codes.COUNTER_ROSE, codes.SIZE_DIP)
    culprits = (1,) if rises else ()
    return Scene(fault, Expected((Cause.ROCE_LOSS,), culprits, told=told), twin)


def by_local_rank(
    job: NcclJob, slow: tuple[int, ...], slow_gbs: float, usual_gbs: float
) -> tuple[BandwidthRow, ...]:
    """One group of each local rank over all nodes."""
    return tuple(
        BandwidthRow(
            op=Op.ALL_REDUCE, size_bytes=256 * MIB, comm_label=f"DP {gpu}",
            ranks=tuple(range(gpu, job.size, job.per_node)),
            busbw_gbs=slow_gbs + 0.1 * gpu if gpu in slow else usual_gbs - 0.2 * gpu,
        )
        for gpu in range(job.per_node)
    )  # fmt: skip


def shared_card(
    folder: Path, *, n_nodes: int, per_node: int, node: int, gpus: tuple[int, int], slow_gbs: float
) -> Scene:
    """C60: on one node two GPUs send by one card, and their groups are slow. In the twin all nodes
    are built so, and no group is slower."""
    job, alike = NcclJob(n_nodes, per_node), NcclJob(n_nodes, per_node)
    card = gpus[1]
    ranks = tuple(node * per_node + gpu for gpu in gpus)
    job.network(dict.fromkeys(ranks, card))
    alike.network({rank: alike.gpu(rank) // 2 for rank in range(alike.size)})
    rows = by_local_rank(job, gpus, slow_gbs, 80.0)
    place = f"{job.host(node)}/mlx5_{card}"
    told = (codes.NIC_USERS, codes.NIC_ALONE, codes.SLOW_GROUPS)
    return Scene(
        replace(job.evidence(folder / "fault"), bandwidth=rows),
        Expected((Cause.NIC_SHARED,), ranks, told=told, places=(place,)),
        replace(alike.evidence(folder / "twin"), bandwidth=by_local_rank(job, (), 0, 80.0)),
    )


def ceiling(_: Path, *, n_hosts: int, n_listed: int, n_links: int, rate: float) -> Scene:
    """C61: interfaces that are fewer links than they look, and a bandwidth of what those carry. In
    the twin each is a link."""

    def evidence(n_guids: int, ratio: float) -> JobEvidence:
        hosts = [f"box{i}" for i in range(n_hosts)]
        ports = tuple(
            PortState(
                host=host, device=f"mlx5_{i}", rate_gbs=rate, state="active",
                guid=f"{host}-{i % n_guids:04x}",
            )
            for host in hosts
            for i in range(n_listed)
        )  # fmt: skip
        row = BandwidthRow(
            op=Op.ALL_REDUCE, size_bytes=1024 * MIB, busbw_gbs=ratio * n_guids * rate,
            hosts=tuple(hosts),
        )  # fmt: skip
        return JobEvidence(hosts=HostFacts(ports=ports), bandwidth=(row,))

    expected = Expected((Cause.SLOW_LINK,), (), told=(codes.CEILING,))
    return Scene(evidence(n_links, 0.92), expected, evidence(n_listed, 0.92))


def run_of(
    folder: Path, name: str, settings: dict[str, str], rows: list[BandwidthRow],
    version: str = "2.27.3+cuda12.9", plan: str = "",
) -> JobEvidence:  # fmt: skip
    """A run of two nodes with its settings, version and plan in the logs."""
    job = NcclJob(2, 2)
    for rank in range(job.size):
        job.info(rank, 0, f"NCCL version {version}")
        for key, value in settings.items():
            job.info(rank, 0, f"{key} set by environment to {value}.")
        if plan:
            job.info(rank, 0, plan)
    return replace(job.evidence(folder / name), bandwidth=tuple(rows))


def row(gbs: float, *, op: Op = Op.ALL_REDUCE, low: float = 0, high: float = 0) -> BandwidthRow:
    return BandwidthRow(
        op=op, size_bytes=512 * MIB, busbw_gbs=gbs, low_gbs=low, high_gbs=high,
        ranks=tuple(range(16)), hosts=("a", "b"),
    )  # fmt: skip


def one_setting(
    folder: Path, *, name: str, value: str, other: str, slow: tuple[float, float], usual: float
) -> Scene:
    """C62: slow and unsteady with one value of a setting. In the twin a second one differs, so that
    nothing tells which matters."""
    low, high = slow
    rows = [row((low + high) / 2, low=low, high=high)]
    own = {name: value} if value else {}
    their = {name: other} if other else {}
    slow_run = run_of(folder, "slow", own, rows)
    fast = run_of(folder, "fast", their, [row(usual, low=usual * 0.97, high=usual * 1.02)])
    newer = run_of(folder, "newer", their, [row(usual)], version="2.28.7+cuda12.9")
    told = (codes.RUN_SETTING, codes.RUN_SPREAD, codes.SET_BACK)
    return Scene(
        replace(slow_run, baseline=fast),
        Expected((Cause.SLOW_LINK,), (), told=told),
        replace(slow_run, baseline=newer),
        Expected(told=(codes.MISSING_ONE_DIFFERENCE, codes.RUN_SLOWER)),
    )


def together(_: Path, *, pair_gbs: float, all_gbs: float, hosts: tuple[str, ...], op: Op) -> Scene:
    """C63: the first host is fast with each other one, all of them together are slow. In the twin
    one of the pairs is as slow."""

    def evidence(slowest: float) -> JobEvidence:
        values = [pair_gbs - i for i in range(len(hosts) - 2)] + [slowest]
        rows = [
            BandwidthRow(op=op, size_bytes=MIB, busbw_gbs=gbs, hosts=(hosts[0], host))
            for host, gbs in zip(hosts[1:], values, strict=True)
        ]
        whole = BandwidthRow(op=op, size_bytes=MIB, busbw_gbs=all_gbs, hosts=hosts)
        return JobEvidence(bandwidth=(*rows, whole))

    told = (codes.ONLY_FROM_HOSTS, codes.MISSING_LINK_CAUSE, codes.MISSING_PAIRS)
    expected = Expected((Cause.SLOW_LINK,), (), told=told)
    return Scene(evidence(pair_gbs - 2), expected, evidence(all_gbs))


def latency_bound(
    _: Path, *, step_us: float, link_gbs: float, chunks_kib: tuple[int, ...]
) -> Scene:
    """C64: each chunk costs about as much as any other. In the twin the link is the limit."""

    def evidence(latency_ns: float, rate_gbs: float) -> JobEvidence:
        return JobEvidence(
            bandwidth=tuple(
                BandwidthRow(
                    op=Op.SEND, size_bytes=1024 * MIB, chunk_bytes=kib * 1024,
                    busbw_gbs=kib * 1024 / (latency_ns + kib * 1024 / rate_gbs),
                )
                for kib in chunks_kib
            )
        )  # fmt: skip

    expected = Expected(told=(codes.LATENCY_BOUND, codes.ENLARGE_CHUNK))
    return Scene(evidence(step_us * 1000, link_gbs), expected, evidence(300.0, 20.0))


def same_calls(
    folder: Path, *, n_nodes: int, per_node: int, node: int, counts: tuple[int, ...], text: str
) -> Scene:
    """C65: the transport of one node tells a mismatch, and all ranks made the same calls. In the
    twin only the warning is there."""
    job, blind = NcclJob(n_nodes, per_node), NcclJob(n_nodes, per_node)
    for rank in range(job.size):
        for i, count in enumerate(counts):
            job.info(
                rank, 1 + i,
                f"AllReduce: opCount {i:x} sendbuff 0x7f{rank:02x} recvbuff 0x7f{rank:02x} count "
                f"{count} datatype 7 op 0 root 0 comm 0x55f0{rank:04x} [nranks={job.size}] stream "
                f"0x5{rank:03x}",
            )  # fmt: skip
    for one in (job, blind):
        one.warn(node * per_node, 60, f"NET/IB : {text}")
    told = (codes_calls.API_AGREES, codes_calls.SLICE_SIZES, codes_calls.CHECK_ORDERING)
    return Scene(job.write(folder / "fault"), Expected(told=told), blind.write(folder / "twin"))


def one_op(
    folder: Path, *, op: Op, name: str, slow: float, usual: float, others: tuple[Op, ...]
) -> Scene:
    """C66: only one op is slow, and one setting differs. In the twin the other run is as slow."""
    same = [row(120.0 + i, op=other) for i, other in enumerate(others)]
    job = run_of(folder, "slow", {name: "1"}, [row(slow, op=op), *same])
    fast = run_of(folder, "fast", {name: "0"}, [row(usual, op=op), *same])
    slow_too = replace(fast, bandwidth=job.bandwidth)
    told = (codes.OP_ALONE, codes.RUN_SETTING, codes.MISSING_PORT_COUNTERS)
    return Scene(
        replace(job, baseline=fast),
        Expected((Cause.SLOW_LINK,), (), told=told),
        replace(job, baseline=slow_too),
    )


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        57, "some sizes collapse", collapse,
        (
            {"slow_mib": (8, 16, 32, 64), "rises": True, "n_ports": 4, "op": Op.ALL_REDUCE,
             "layer": "infiniband"},
            {"slow_mib": (8, 16, 32, 64), "rises": False, "n_ports": 4, "op": Op.ALL_REDUCE,
             "layer": "infiniband"},
            {"slow_mib": (128,), "rises": False, "n_ports": 6, "op": Op.ALL_GATHER,
             "layer": "ethernet"},
            {"slow_mib": (2, 4), "rises": True, "n_ports": 8, "op": Op.ALL_TO_ALL,
             "layer": "ethernet"},
        ),
    ),
    FieldCase(
        60, "two GPUs behind one card", shared_card,
        (
            {"n_nodes": 4, "per_node": 8, "node": 3, "gpus": (0, 1), "slow_gbs": 41.0},
            {"n_nodes": 8, "per_node": 8, "node": 0, "gpus": (6, 7), "slow_gbs": 39.0},
            {"n_nodes": 5, "per_node": 6, "node": 2, "gpus": (2, 3), "slow_gbs": 20.0},
        ),
    ),
    FieldCase(
        61, "fewer links than interfaces", ceiling,
        (
            {"n_hosts": 2, "n_listed": 4, "n_links": 2, "rate": 12.5},
            {"n_hosts": 4, "n_listed": 8, "n_links": 4, "rate": 25.0},
            {"n_hosts": 2, "n_listed": 2, "n_links": 1, "rate": 50.0},
        ),
    ),
    FieldCase(
        62, "one setting differs", one_setting,
        (
            {"name": "NCCL_IB_ECE_ENABLE", "value": "1", "other": "0", "slow": (60.0, 190.0),
             "usual": 360.0},
            {"name": "NCCL_IB_ADAPTIVE_ROUTING", "value": "", "other": "1", "slow": (20.0, 70.0),
             "usual": 90.0},
            {"name": "NCCL_IB_TC", "value": "0", "other": "106", "slow": (5.0, 11.0),
             "usual": 44.0},
        ),
    ),
    FieldCase(
        63, "slow only together", together,
        (
            {"pair_gbs": 190.0, "all_gbs": 60.0, "hosts": ("A", "B", "C"), "op": Op.ALL_REDUCE},
            {"pair_gbs": 48.0, "all_gbs": 9.0, "hosts": ("r1", "r2", "r3", "r4"),
             "op": Op.ALL_GATHER},
            {"pair_gbs": 390.0, "all_gbs": 150.0, "hosts": ("x", "y", "z"),
             "op": Op.REDUCE_SCATTER},
        ),
    ),
    FieldCase(
        64, "bound by the latency of a step", latency_bound,
        (
            {"step_us": 10.0, "link_gbs": 430.0, "chunks_kib": (128, 256, 1024)},
            {"step_us": 30.0, "link_gbs": 50.0, "chunks_kib": (64, 128, 256, 512)},
            {"step_us": 5.0, "link_gbs": 100.0, "chunks_kib": (16, 32, 64)},
        ),
    ),
    FieldCase(
        65, "a mismatch that only the transport tells", same_calls,
        (
            {"n_nodes": 2, "per_node": 8, "node": 1, "counts": (1024, 4096, 99),
             "text": "Collective mismatch error, local size 524288 remote size 546816"},
            {"n_nodes": 4, "per_node": 2, "node": 0, "counts": (7, 7, 7, 7),
             "text": "collective mismatch, local 1024 remote 65536"},
            {"n_nodes": 3, "per_node": 1, "node": 2, "counts": (1 << 20,),
             "text": "Message truncated : received 546816 bytes instead of 524288"},
        ),
    ),
    FieldCase(
        66, "one op alone is slow", one_op,
        (
            {"op": Op.REDUCE_SCATTER, "name": "NCCL_PXN_DISABLE", "slow": 12.0, "usual": 150.0,
             "others": (Op.ALL_REDUCE, Op.ALL_GATHER)},
            {"op": Op.ALL_TO_ALL, "name": "NCCL_P2P_PXN_LEVEL", "slow": 30.0, "usual": 50.0,
             "others": (Op.ALL_REDUCE,)},
            {"op": Op.ALL_GATHER, "name": "NCCL_CROSS_NIC", "slow": 8.0, "usual": 90.0,
             "others": (Op.REDUCE_SCATTER, Op.BROADCAST)},
        ),
    ),
)  # fmt: skip
