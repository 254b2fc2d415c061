"""Class 7, paths: transfers without an answer, by GID, rail, MTU, flap or a stalled host."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from comminsight.diagnosis import codes_link as codes
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import CounterSeries, Link, LinkMap
from comminsight.model.host_facts import GidEntry, HostFacts, PortState
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.builders.nccl_job import NcclJob, no_answer, not_brought_up
from tests.cases.field_case import Expected, FieldCase, Scene

NO_RANKS: tuple[int, ...] = ()


def address(node: int) -> str:
    return f"10.40.{node}.7"


def v4(node: int) -> str:
    return f"::ffff:{address(node)}"


def local(node: int) -> str:
    return f"fe80::5e25:73ff:fe{node:02x}:1"


def table(host: str, device: str, node: int, *, observed_ns: int = 1) -> list[GidEntry]:
    """Link-local and routable, each in both versions, as drivers list them."""
    gids = ((local(node), "v1"), (local(node), "v2"), (v4(node), "v1"), (v4(node), "v2"))
    return [
        GidEntry(host=host, device=device, index=i, gid=gid, kind=kind, observed_ns=observed_ns)
        for i, (gid, kind) in enumerate(gids)
    ]


def all_tables(job: NcclJob, device: str) -> tuple[GidEntry, ...]:
    return tuple(e for node in range(job.n_nodes) for e in table(job.host(node), device, node))


def by_rank_links(job: NcclJob, form: str = "mlx5_{}") -> LinkMap:
    """Each rank by the card of its GPU's number."""
    return LinkMap(
        links=tuple(
            Link(
                global_rank=rank, host=job.host(job.node(rank)),
                device=form.format(job.gpu(rank)), rail=job.gpu(rank),
            )
            for rank in range(job.size)
        )
    )  # fmt: skip


def wrong_entry(
    folder: Path, *, n_nodes: int, per_node: int, index: int, delay_s: float, form: str, host: str
) -> Scene:
    """C51: all use an entry that is not routed; the first transfers already get no answer."""
    job = NcclJob(n_nodes, per_node, host)
    flushed = NcclJob(n_nodes, per_node, host)
    for rank in range(0, job.size, per_node):
        peer = (job.node(rank) + 1) % n_nodes
        job.info(rank, 0, f"NCCL_IB_GID_INDEX set by environment to {index}.")
        job.warn(rank, delay_s, no_answer(address(peer), form=form))
        flushed.warn(rank, delay_s, no_answer(address(peer), status=5, vendor=249))
    evidence = job.evidence(folder / "fault")
    evidence = replace(evidence, hosts=HostFacts(gids=all_tables(job, "mlx5_0")))
    told = (codes.AT_FIRST_USE, codes.GID_USED, codes.USE_GID)
    expected = Expected((Cause.PEER_UNREACHABLE,), NO_RANKS, told=told)
    return Scene(evidence, expected, flushed.write(folder / "twin"))


def link_local(
    folder: Path, *, n_nodes: int, per_node: int, node: int, device: str, host: str
) -> Scene:
    """C52: one node brings up its connections with a GID that is valid on its own link only. In the
    twin both ends are link-local, which is how InfiniBand looks: no reason may be told."""
    job, other = NcclJob(n_nodes, per_node, host), NcclJob(n_nodes, per_node, host)
    rank, peer = node * per_node, (node + 1) % n_nodes
    job.warn(rank, 3, not_brought_up(device, 1, (local(node), v4(peer))))
    other.warn(rank, 3, not_brought_up(device, 0, (local(node), local(peer))))
    return Scene(
        job.write(folder / "fault"),
        Expected(
            (Cause.PEER_UNREACHABLE,), (rank,), told=(codes.GID_LINK_LOCAL,),
            places=(f"{job.host(node).partition('.')[0]}/{device}",),
        ),
        other.write(folder / "twin"),
        Expected((Cause.PEER_UNREACHABLE,), NO_RANKS, told=(codes.MISSING_GID_TABLE,)),
    )  # fmt: skip


def drifted(
    folder: Path, *, n_nodes: int, node: int, index: int, moved_to: int, hours: float
) -> Scene:
    """C53: after hours the GID of one node stands at another index than the job uses. In the twin
    the table changed as well, and no transfer failed."""
    job, healthy = NcclJob(n_nodes, 1), NcclJob(n_nodes, 1)
    device = "mlx5_2"
    for rank in range(n_nodes):
        for one in (job, healthy):
            one.info(rank, 0, f"NCCL_IB_GID_INDEX set by environment to {index}.")
    job.warn((node + 1) % n_nodes, hours * 3600, no_answer(address(node)))
    before = all_tables(job, device)
    host = job.host(node)
    after = [
        GidEntry(host=host, device=device, index=i, gid="::" if i == index else local(node),
                 kind="v2", observed_ns=9)
        for i in range(4)
    ]  # fmt: skip
    moved = GidEntry(
        host=host, device=device, index=moved_to, gid=v4(node), kind="v2", observed_ns=9
    )
    hosts = HostFacts(gids=(*before, *after, moved))
    told = (codes.LATE_ERROR, codes.GID_DRIFT, codes.RESTART_NODE)
    return Scene(
        replace(job.evidence(folder / "fault"), hosts=hosts),
        Expected((Cause.PEER_UNREACHABLE,), (node,), told=told, places=(f"{host}/{device}",)),
        replace(healthy.evidence(folder / "twin"), hosts=hosts),
    )


def stuck_first_op(folder: Path, n_ranks: int) -> JobEvidence:
    """All ranks in the first broadcast of the job, by their dumps."""
    world = {"0": Group("default_pg", tuple(range(n_ranks)))}
    programs = {rank: [Call("0", "broadcast", (4096,))] for rank in range(n_ranks)}
    folder.mkdir()
    write_dumps(folder, FlightJob(world, programs, dead={(0, 0)}).play())
    job = NcclJob(n_ranks, 1)
    job.network(dict.fromkeys(range(n_ranks), 1), ports=2, kind="RoCE")
    return job.evidence(folder)


def sampled(host: str, device: str, counter: str, values: tuple[float, ...]) -> CounterSeries:
    times = tuple(1_000_000_000 * i for i in range(len(values)))
    return CounterSeries(
        host=host, device=device, counter=counter, unit="1", times_ns=times, values=values
    )


def unanswered_node(
    folder: Path, *, n_ranks: int, node: int, n_unanswered: int, n_lost: int
) -> Scene:
    """C54: all stand in the first broadcast, and the port of one node counts both transfers without
    an answer and lost packets. In the twin all ports count alike, from an earlier time."""
    evidence = stuck_first_op(folder / "dumps", n_ranks)
    hosts = [f"node{i}" for i in range(n_ranks)]
    rises = {"local_ack_timeout_err": n_unanswered, "out_of_sequence": n_lost}
    counters = tuple(
        sampled(name, "mlx5_1", counter, (70.0, 70.0 + (n if i == node else 0)))
        for i, name in enumerate(hosts)
        for counter, n in rises.items()
    )
    alike = tuple(
        sampled(name, "mlx5_1", counter, (70.0, 70.0 + n))
        for name in hosts
        for counter, n in rises.items()
    )
    ports = HostFacts(
        ports=tuple(PortState(host=h, device="mlx5_1", link_layer="ethernet") for h in hosts)
    )
    evidence = replace(evidence, hosts=ports)
    return Scene(
        replace(evidence, counters=counters),
        Expected(
            (Cause.PEER_UNREACHABLE,), (node,), also=(Cause.ROCE_LOSS,),
            told=(codes.COUNTER_ROSE,), places=(hosts[node], f"{hosts[node]}/mlx5_1"),
        ),
        replace(evidence, counters=alike),
        Expected((Cause.ALL_PRESENT_STUCK,)),
    )  # fmt: skip


def cross_rail(
    folder: Path, *, n_nodes: int, n_rails: int, failing: tuple[tuple[int, int], ...]
) -> Scene:
    """C55: only pairs of two rails fail. In the twin one pair of a single rail fails too."""
    job, mixed = NcclJob(n_nodes, n_rails), NcclJob(n_nodes, n_rails)

    def gid(node: int, rail: int) -> str:
        return f"::ffff:10.{50 + rail}.0.{node + 1}"

    for k, (a, b) in enumerate(failing):
        here, there = k % n_nodes, (k + 1) % n_nodes
        line = not_brought_up(f"mlx5_{a}", 3, (gid(here, a), gid(there, b)))
        for one in (job, mixed):
            one.warn(here * n_rails + a, 5000, line)
    mixed.warn(0, 5000, not_brought_up("mlx5_0", 3, (gid(0, 0), gid(1, 0))))
    gids = tuple(
        GidEntry(host=job.host(n), device=f"mlx5_{r}", index=3, gid=gid(n, r), kind="v2")
        for n in range(n_nodes)
        for r in range(n_rails)
    )
    worked = tuple(
        BandwidthRow(
            op=Op.ALL_REDUCE, size_bytes=1 << 20, busbw_gbs=40.0,
            devices=(f"{job.host(0)}/mlx5_{r}", f"{job.host(1)}/mlx5_{r}"),
        )
        for r in range(n_rails)
    )  # fmt: skip

    def whole(one: NcclJob, name: str) -> JobEvidence:
        evidence = one.evidence(folder / name)
        links = by_rank_links(one)
        return replace(evidence, hosts=HostFacts(gids=gids), links=links, bandwidth=worked)

    told = (codes.CROSS_RAIL, codes.CROSS_NIC_OFF)
    return Scene(
        whole(job, "fault"),
        Expected((Cause.PEER_UNREACHABLE,), NO_RANKS, told=told),
        whole(mixed, "twin"),
        Expected((Cause.PEER_UNREACHABLE,), NO_RANKS),
    )


def unlike_mtu(folder: Path, *, n_nodes: int, odd: int, mtu: int, usual: int) -> Scene:
    """C56: a transfer joins two ports of unlike MTU. In the twin only a storage port differs, which
    no rank uses."""
    job = NcclJob(n_nodes, 1)
    reporter = (odd + 1) % n_nodes
    job.warn(reporter, 40, no_answer(job.host(odd), device="mlx5_0", gids=(v4(reporter), v4(odd))))
    job.network(n_channels=1, kind="RoCE")
    evidence = job.evidence(folder / "fault")

    def ports(device: str) -> tuple[PortState, ...]:
        return tuple(
            PortState(
                host=job.host(n), device=name, state="active", link_layer="ethernet",
                active_mtu_bytes=mtu if n == odd and name == device else usual,
            )
            for n in range(n_nodes)
            for name in ("mlx5_0", "mlx5_storage")
        )  # fmt: skip

    named = (odd,) if n_nodes > 2 else NO_RANKS
    return Scene(
        replace(evidence, hosts=HostFacts(ports=ports("mlx5_0"))),
        Expected((Cause.MTU_MISMATCH,), named, told=(codes.MTU_DIFFERS, codes.SET_MTU)),
        replace(evidence, hosts=HostFacts(ports=ports("mlx5_storage"))),
        Expected((Cause.PEER_UNREACHABLE,), NO_RANKS),
    )


def flapping(
    folder: Path, *, n_nodes: int, per_node: int, node: int, gpu: int, down_s: float, delay_s: int
) -> Scene:
    """C58: a port goes down and comes back; then again, and workers raise. In the twin nothing
    fails after it."""
    job, calm = NcclJob(n_nodes, per_node), NcclJob(n_nodes, per_node)
    device, rank = f"mlx5_{gpu}", node * per_node + gpu
    again = 600.0
    for one in (job, calm):
        one.network(second=1)
        for second, event in ((100, "port error"), (100 + down_s, "port active"),
                              (again, "port error")):  # fmt: skip
            one.warn(rank, second, f"NET/IB : {device}:1 Got async event : {event}")
    peer = (node + 1) % n_nodes
    for victim in {rank, peer * per_node + gpu}:
        job.warn(victim, again + delay_s, no_answer(address(peer), form="new"))
    told = (codes.PORT_DOWN, codes.PORT_BACK, codes.FAILED_AFTER, codes.CHECK_PORT)
    return Scene(
        job.write(folder / "fault"),
        Expected((Cause.LINK_FLAP,), (rank,), told=told, places=(f"{job.host(node)}/{device}",)),
        calm.write(folder / "twin"),
        Expected(told=(codes.PORT_DOWN, codes.MISSING_LINK_EFFECT)),
    )


def stalled_host(folder: Path, *, n_nodes: int, node: int, hours: float, process: str) -> Scene:
    """C59: late, and just then the kernel of the same node killed a process that is no rank. In the
    twin there is no kernel log."""
    job, blind = NcclJob(n_nodes, 2), NcclJob(n_nodes, 2)
    second, peer = hours * 3600, (node + 1) % n_nodes
    for one in (job, blind):
        one.warn(node * 2, second, no_answer(address(peer)))
        one.warn(node * 2, second + 1, no_answer(address(peer), status=5, vendor=249))
    job.kernel(
        node, second - 1,
        f"Out of memory: Killed process 77031 ({process}) total-vm:9000kB, anon-rss:8100kB",
    )  # fmt: skip
    expected = (Cause.PEER_UNREACHABLE,)
    return Scene(
        job.write(folder / "fault"),
        Expected(expected, NO_RANKS, told=(codes.LATE_ERROR, codes.HOST_EVENT)),
        blind.write(folder / "twin"),
        Expected(expected, NO_RANKS, told=(codes.LATE_ERROR, codes.MISSING_HOST_LOG)),
    )


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        51, "an entry of the GID table that is not routed", wrong_entry,
        (
            {"n_nodes": 2, "per_node": 1, "index": 0, "delay_s": 1, "form": "old",
             "host": "node{}"},
            {"n_nodes": 4, "per_node": 8, "index": 1, "delay_s": 35, "form": "new",
             "host": "gpu-{:03}.cluster"},
            {"n_nodes": 3, "per_node": 2, "index": 2, "delay_s": 20, "form": "old",
             "host": "w{}"},
        ),
    ),
    FieldCase(
        52, "a link-local GID", link_local,
        (
            {"n_nodes": 2, "per_node": 1, "node": 0, "device": "mlx5_2", "host": "node{}"},
            {"n_nodes": 4, "per_node": 8, "node": 3, "device": "mlx5_0", "host": "rack1-{}"},
            {"n_nodes": 3, "per_node": 4, "node": 1, "device": "bnxt_re1", "host": "n{}.lan"},
        ),
    ),
    FieldCase(
        53, "a GID that moved", drifted,
        (
            {"n_nodes": 5, "node": 4, "index": 3, "moved_to": 6, "hours": 12.0},
            {"n_nodes": 3, "node": 0, "index": 2, "moved_to": 9, "hours": 1.5},
            {"n_nodes": 16, "node": 7, "index": 3, "moved_to": 5, "hours": 70.0},
        ),
    ),
    FieldCase(
        54, "a node whose senders get no answer", unanswered_node,
        (
            {"n_ranks": 40, "node": 7, "n_unanswered": 91_316, "n_lost": 6_100_000},
            {"n_ranks": 5, "node": 0, "n_unanswered": 210, "n_lost": 4_000},
            {"n_ranks": 8, "node": 5, "n_unanswered": 5_000, "n_lost": 70_000},
        ),
    ),
    FieldCase(
        55, "pairs of two rails", cross_rail,
        (
            {"n_nodes": 2, "n_rails": 8, "failing": ((0, 5), (5, 0), (2, 7))},
            {"n_nodes": 8, "n_rails": 4, "failing": ((0, 1), (1, 2), (2, 3), (3, 0))},
            {"n_nodes": 3, "n_rails": 2, "failing": ((0, 1), (1, 0), (0, 1), (1, 0))},
        ),
    ),
    FieldCase(
        56, "unlike MTUs", unlike_mtu,
        (
            {"n_nodes": 2, "odd": 0, "mtu": 1024, "usual": 4096},
            {"n_nodes": 4, "odd": 2, "mtu": 1024, "usual": 4096},
            {"n_nodes": 8, "odd": 7, "mtu": 4096, "usual": 1024},
        ),
    ),
    FieldCase(
        58, "a link that flaps", flapping,
        (
            {"n_nodes": 2, "per_node": 8, "node": 1, "gpu": 7, "down_s": 8, "delay_s": 17},
            {"n_nodes": 4, "per_node": 2, "node": 0, "gpu": 1, "down_s": 2, "delay_s": 3},
            {"n_nodes": 3, "per_node": 4, "node": 2, "gpu": 0, "down_s": 60, "delay_s": 90},
        ),
    ),
    FieldCase(
        59, "a host that stood still", stalled_host,
        (
            {"n_nodes": 2, "node": 0, "hours": 1.4, "process": "node-agent"},
            {"n_nodes": 4, "node": 3, "hours": 30.0, "process": "probe"},
            {"n_nodes": 8, "node": 2, "hours": 9.0, "process": "fluentd"},
        ),
    ),
)  # fmt: skip
