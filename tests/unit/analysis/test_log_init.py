"""Phases of init by NCCL's lines, and the addresses by which ranks try to meet."""

from __future__ import annotations

import pytest

from comminsight.analysis.log_init import InitPhase, LogInit, claimed_twice, every_nth, log_init
from comminsight.analysis.log_meeting import connect_failures, is_of_one_host, offers
from comminsight.analysis.log_ranks import ranks_of
from comminsight.model.job_evidence import JobLog
from tests.unit.analysis.log_texts import job_log

S = 1_000_000_000
PATIENCE_NS = 120 * S
WHO = "comm 0x5{rank} rank {rank} nranks {n} cudaDev {rank} busId {rank}b000 commId {comm}"


def line(second: int, rank: int, text: str, *, host: str = "n1", level: str = "INFO") -> str:
    minutes, seconds = divmod(second, 60)
    stamp = f"[2026-04-14 16:{minutes:02d}:{seconds:02d}]"
    return f"{stamp} {host}:7{rank}:9 [{rank}] NCCL {level} {text}"


def start(rank: int, *, n: int = 2, at: int = 1, comm: str = "0x9", host: str = "n1") -> str:
    who = WHO.format(rank=rank, n=n, comm=comm)
    return line(at, rank, f"ncclCommInitRank {who} - Init START", host=host)


def complete(rank: int, *, n: int = 2) -> str:
    who = WHO.format(rank=rank, n=n, comm="0x9")
    return line(3, rank, f"ncclCommInitRank {who} - Init COMPLETE")


def seen(*logs: JobLog, world_size: int = 0) -> LogInit:
    return log_init(logs, ranks_of(logs, world_size), patience_ns=PATIENCE_NS)


def test_the_last_phase_of_each_rank() -> None:
    rings = line(2, 1, "Connected all rings")
    logs = [
        job_log(start(0, n=4), complete(0, n=4), start(1, n=4), rings, start(2, n=4)),
        job_log("nothing", file="rank_3.log", rank=3),
    ]
    found = seen(*logs)
    assert [found.phases[rank] for rank in range(4)] == [
        InitPhase.COMPLETE, InitPhase.CONNECTING, InitPhase.BEGUN, InitPhase.NOT_BEGUN,
    ]  # fmt: skip
    assert found.ranks(InitPhase.BEGUN, InitPhase.CONNECTING) == (1, 2)


def test_a_rank_whose_transport_complains_has_begun() -> None:
    failed = line(9, 1, "x.cc:1 NCCL WARN", level="WARN").split(" NCCL WARN ")[0]
    failed += " misc/socket.cc:5 NCCL WARN Connect to 10.0.0.1<4> failed : Connection timed out"
    found = seen(job_log(start(0), file="a"), job_log(failed, file="b", rank=1))
    assert found.phases[1] is InitPhase.BEGUN


@pytest.mark.parametrize(
    ("last", "has_stopped"), [(60, False), (200, True)], ids=["early", "long after"]
)
def test_it_stands_still_when_time_went_by(last: int, *, has_stopped: bool) -> None:
    found = seen(job_log(start(0), start(1), line(last, 0, "Using network Socket")))
    assert found.has_stopped is has_stopped


def test_lines_that_some_lack_may_be_lost() -> None:
    layout = "comm 0x50 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0"
    assert seen(job_log(start(0), start(1))).is_whole
    assert not seen(job_log(start(0), line(2, 0, layout), start(1))).is_whole


def test_ops_show_that_init_is_over() -> None:
    op = "[rank0]: [PG ID 0 PG GUID 0(default_pg) Rank 0] Heartbeat monitor timed out"
    assert seen(job_log(start(0), op)).has_ops
    assert not seen(job_log(start(0))).has_ops


@pytest.mark.parametrize(
    ("places", "step"), [((1, 3, 5), 2), ((0, 4), 4), ((0, 1, 3), 0), ((2,), 0), ((), 0)]
)
def test_places_that_stand_equally_far_apart(places: tuple[int, ...], step: int) -> None:
    assert every_nth(places) == step


@pytest.mark.parametrize(
    ("hosts", "comms", "twice"),
    [
        (("n1", "n2"), ("0xa", "0xb"), [0]),
        (("n1", "n2"), ("0xa", "0xa"), []),  # one communicator: a rank that moved
        (("n1", "n1"), ("0xa", "0xb"), []),  # one after the other
    ],
)
def test_a_rank_on_two_hosts_is_of_two_worlds(
    hosts: tuple[str, str], comms: tuple[str, str], twice: list[int]
) -> None:
    lines = [
        f"[rank0]: {start(0, comm=comm, host=host)}"
        for host, comm in zip(hosts, comms, strict=True)
    ]
    log = job_log(*lines)
    assert list(claimed_twice([log], ranks_of([log]))) == twice


@pytest.mark.parametrize(
    ("interface", "address", "is_local"),
    [
        ("eth0", "10.0.0.1", False), ("lo", "127.0.0.1", True), ("docker0", "172.17.0.1", True),
        ("veth1a2b", "10.9.0.1", True), ("eth0", "172.17.3.4", True), ("bond0", "10.1.0.1", False),
        ("loadnet0", "10.0.0.1", False), ("br-4f2a", "10.2.0.1", True),
    ],
)  # fmt: skip
def test_an_address_of_one_host_only(interface: str, address: str, *, is_local: bool) -> None:
    log = job_log(line(1, 0, f"Bootstrap : Using {interface}:{address}<0>"))
    (offer,) = offers([log], ranks_of([log]))
    assert (offer.interface, offer.address) == (interface, address)
    assert is_of_one_host(offer) is is_local


@pytest.mark.parametrize(
    ("said", "is_without_path"),
    [
        ("Connect to 10.0.0.1<4> returned 113(No route to host) errno 113", True),
        ("Connect to 10.0.0.1<4> failed : Connection timed out", True),
        ("Connect to 10.0.0.1<4> failed : Connection refused", False),
    ],
)
def test_a_refused_connection_had_a_path(said: str, *, is_without_path: bool) -> None:
    text = f"n1:70:9 [0] misc/socket.cc:5 NCCL WARN {said}"
    log = job_log(text)
    (failure,) = connect_failures([log], ranks_of([log]))
    assert failure.is_without_path is is_without_path
