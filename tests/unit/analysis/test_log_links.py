"""The map from ranks to ports that lines of NCCL give, and when it is whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from comminsight.analysis.log_devices import devices_of
from comminsight.analysis.placement import is_used, is_whole_at, only_port_of, ranks_at
from comminsight.model.counters import LinkMap
from comminsight.pipeline.job_evidence import gather
from comminsight.pipeline.job_logs import read_logs
from tests.builders.nccl_job import NcclJob

SAMPLE = Path(__file__).resolve().parents[4] / "shared/samples/rccl-debug-log"


def links_of(job: NcclJob, folder: Path) -> LinkMap:
    found = job.evidence(folder).links
    assert found is not None
    return found


def by_rank(links: LinkMap) -> dict[int, set[tuple[str, str, int]]]:
    found: dict[int, set[tuple[str, str, int]]] = {}
    for one in links.links:
        found.setdefault(one.global_rank, set()).add((one.host, one.device, one.port))
    return found


@pytest.mark.parametrize(("n_nodes", "per_node", "host", "kind"), [
    (2, 8, "node{}", "IB"), (3, 1, "w{}.lan", "RoCE"), (4, 4, "gpu-{:02}.cluster", "RoCE/SHARP"),
])  # fmt: skip
def test_each_rank_by_the_card_of_its_channels(
    tmp_path: Path, n_nodes: int, per_node: int, host: str, kind: str
) -> None:
    job = NcclJob(n_nodes, per_node, host)
    job.network(listed="mlx5_1{}", kind=kind)
    links = links_of(job, tmp_path)
    names = [job.host(node).partition(".")[0] for node in range(n_nodes)]
    assert by_rank(links) == {
        rank: {(names[job.node(rank)], f"mlx5_1{job.gpu(rank)}", 1)} for rank in range(job.size)
    }
    assert links.whole_ranks == frozenset(range(job.size))
    assert links.whole_hosts == frozenset(names)
    assert [gpu.device for gpu in links.gpus] == [f"gpu{job.gpu(r)}" for r in range(job.size)]
    last = job.size - 1
    assert only_port_of(links, last) == (names[-1], f"mlx5_1{per_node - 1}")
    assert not is_used(links, job.host(0), "mlx5_storage")


@pytest.mark.parametrize(("net", "tail", "is_told"), [
    ("IBext_v8", "/GDRDMA", True), ("NCCL RDMA Plugin v10", "", True), ("IB", "(3)/GDRDMA", True),
    ("AWS Libfabric", "/GDRDMA", False), ("Socket", "", False),
])  # fmt: skip
def test_networks_whose_numbers_the_list_tells(
    tmp_path: Path, net: str, tail: str, is_told: bool
) -> None:
    job = NcclJob(2, 2)
    job.network(net=net, tail=tail)
    links = links_of(job, tmp_path)
    assert (len(links.links), links.whole_ranks) == (
        (4, frozenset(range(4))) if is_told else (0, frozenset())
    )


def test_interfaces_of_sockets(tmp_path: Path) -> None:
    job = NcclJob(2, 1)
    for rank in range(2):
        job.info(rank, 0, "NET/Socket : Using [0]bond0:10.0.0.1<0> [1]eth1:fe80::1%eth1<0>")
    job.network({0: 1, 1: 0}, net="Socket", tail="")
    assert by_rank(links_of(job, tmp_path)) == {
        0: {("node0", "eth1", 0)}, 1: {("node1", "bond0", 0)},
    }  # fmt: skip


def test_processes_that_were_given_one_card_each(tmp_path: Path) -> None:
    """All call theirs 0."""
    job = NcclJob(4, 2)
    job.network(dict.fromkeys(range(8), 0))
    for rank, lines in job.lines.items():
        own = f"[0]mlx5_{job.gpu(rank)}:1/IB [RO]"
        job.lines[rank] = [(s, re.sub(r"\[0\]mlx5_0:1/IB.*\[RO\]", own, t)) for s, t in lines]
    links = links_of(job, tmp_path)
    assert ranks_at(links, "node1", "mlx5_1") == (3,)
    assert links.whole_hosts == frozenset({"node0", "node1", "node2", "node3"})


LISTS = {
    "[0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]": {0: (("mlx5_0", 1),), 1: (("mlx5_1", 1),)},
    "[0]={[0] mlx5_0:1/RoCE, [1] mlx5_0:2/RoCE} [RO]": {0: (("mlx5_0", 1), ("mlx5_0", 2))},
    "[0]={[0] a:1/IB, [1] b:1/IB} [2]c:1/IB": {0: (("a", 1), ("b", 1)), 1: ()},
    "[0]mlx5_0:1/IB [1]mlx5_1:1/I": {0: (("mlx5_0", 1),), 1: ()},
    "[1]mlx5_0:1/IB": {0: ()},
}  # fmt: skip


@pytest.mark.parametrize("listed", LISTS)
def test_lists(tmp_path: Path, listed: str) -> None:
    job = NcclJob(1, 1)
    job.info(0, 0, f"NET/IB : Using {listed}; OOB eth0:10.0.0.1<0>")
    logs, _ = read_logs([*job.write(tmp_path).iterdir()])
    (own,) = devices_of(logs).values()
    assert own.ib == LISTS[listed]


@pytest.mark.parametrize(("name", "ports"), [
    ("mlx5_0+mlx5_1", (("mlx5_0", 1), ("mlx5_1", 1))), ("mlx5_2+mlx5_2", ()), ("mlx5_9", ()),
    ("mlx5_2+mlx5_0", ()),
])  # fmt: skip
def test_devices_that_nccl_makes_of_several(
    tmp_path: Path, name: str, ports: tuple[tuple[str, int], ...]
) -> None:
    job = NcclJob(1, 1)
    listed = "[0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_2:2/IB"
    job.info(0, 0, "NET/IB : Made virtual device [0] name=mlx5_0 speed=400000 ndevs=1")
    job.info(0, 0, f"NET/IB : Using {listed} [RO]; OOB eth0:10.0.0.1<0>")
    job.info(0, 1, f"NET/IB : Made virtual device [4] name={name} speed=800000 ndevs=2")
    logs, _ = read_logs([*job.write(tmp_path).iterdir()])
    (own,) = devices_of(logs).values()
    assert own.ports("IB", 4) == ports
    assert own.ports("IB", 0) == (("mlx5_0", 1),)


def without(job: NcclJob, rank: int, *words: str) -> None:
    """The log of the rank without its lines that have all of the words."""
    job.lines[rank] = [
        (s, text) for s, text in job.lines[rank] if not all(word in text for word in words)
    ]


LOSSES: dict[str, Callable[[NcclJob], None]] = {
    "a line of one end": lambda job: without(job, 2, "Channel 01", "[send]"),
    "a line of the other end": lambda job: without(job, 1, "Channel 00", "[receive]"),
    "a log": lambda job: job.lines.__delitem__(3),
    "all behind the channels": lambda job: without(job, 0, "Connected"),
    "the list of one": lambda job: without(job, 1, "NET/IB : Using"),
    "who wrote it": lambda job: without(job, 2, "Init"),
    "channels of switches": lambda job: job.info(0, 0, "NCCL_COLLNET_ENABLE set to 1."),
    "a line left out by Ray": lambda job: job.lines.__setitem__(0, [
        (s, text.replace("GDRDMA", "GDRDMA [repeated 2x across cluster]", 1))
        for s, text in job.lines[0]
    ]),
}  # fmt: skip


@pytest.mark.parametrize("lost", LOSSES)
def test_a_map_that_lacks_something_says_so(tmp_path: Path, lost: str) -> None:
    job = NcclJob(2, 2)
    job.network()
    LOSSES[lost](job)
    links = links_of(job, tmp_path)
    assert links.whole_ranks != frozenset(range(4))
    assert links.whole_hosts != frozenset({"node0", "node1"})
    partial = next(h for h in ("node0", "node1") if not is_whole_at(links, h))
    assert is_used(links, partial, "mlx5_storage")


def test_lines_beyond_the_bound_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = NcclJob(2, 1)
    job.network(n_channels=8)
    monkeypatch.setattr("comminsight.pipeline.job_logs.MAX_EVENTS", 15)
    assert links_of(job, tmp_path).whole_ranks == frozenset()


def test_a_job_of_one_node_has_no_map(tmp_path: Path) -> None:
    job = NcclJob(1, 4)
    for rank in range(4):
        job.info(rank, 1, f"Channel 00/0 : {rank}[{rank}] -> {(rank + 1) % 4}[0] via P2P/CUMEM")
    assert job.evidence(tmp_path).links is None


@pytest.mark.skipif(not SAMPLE.is_dir(), reason="no samples beside the checkout")
def test_a_real_log_of_two_nodes() -> None:
    """32 ranks of RCCL in one file, in which a table of the program cuts through lines."""
    links = gather([SAMPLE]).job.links
    assert links is not None
    assert links.whole_ranks == frozenset(range(32))
    assert ranks_at(links, "mi200000000", "mlx5_7") == (13, 15)
    assert not any(one.global_rank == 9 for one in links.links)  # it reaches others by GPUs
    assert {one.device for one in links.links} == {f"mlx5_{n}" for n in range(8)}
