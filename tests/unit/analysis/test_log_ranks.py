"""A number counts as the global rank only where something says that it is one."""

from __future__ import annotations

import pytest

from comminsight.analysis.log_ranks import ranks_of, short_host
from comminsight.model.job_evidence import JobLog
from tests.unit.analysis.log_texts import job_log

INIT = "{host}:{pid}:9 [0] NCCL INFO ncclCommInitRank comm 0x5{pid} rank {rank} nranks {n} cudaDev 0 busId 1b000 commId 0x9 - Init START"  # noqa: E501
SPLIT = "{host}:{pid}:9 [0] NCCL INFO ncclCommSplit comm 0x6 rank {rank} nranks {n} cudaDev 0 busId 1b000 parent 0x5 childCount 2 color 1 key 3- Init START"  # noqa: E501
SIGNAL = "/job/run.sh: line 12: {pid} Segmentation fault      (core dumped) python x"
OOM = "2026-04-14T16:00:00+00:00 {host} kernel: [1.250000] Out of memory: Killed process {pid} (p)"


def init(rank: int, pid: int, *, n: int = 4, host: str = "n1", form: str = INIT) -> str:
    return form.format(host=host, pid=pid, rank=rank, n=n)


def ranks_in(*logs: JobLog, world_size: int = 0) -> list[int]:
    ranks = ranks_of(logs, world_size)
    return [ranks.rank_of(log, event) for log in logs for event in log.events]


WORLD = tuple(init(rank, 70 + rank) for rank in range(4))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("[rank3]: CUDA error: x",), [3]),
        (("[default3]:CUDA error: x",), [-1]),
        (("[PG ID 0 PG GUID 0(default_pg) Rank 3] Heartbeat monitor timed out",), [3]),
        (("[PG ID 2 PG GUID 5(tp) Rank 3] Heartbeat monitor timed out",), [-1]),
        (("[Rank 3] To avoid data inconsistency, we are taking the entire process down",), [-1]),
        ((*WORLD, SIGNAL.format(pid=72)), [0, 1, 2, 3, 2]),
        ((*WORLD, SIGNAL.format(pid=99)), [0, 1, 2, 3, -1]),
        ((*WORLD, OOM.format(host="n1.example", pid=73)), [0, 1, 2, 3, 3]),
        ((*WORLD, OOM.format(host="n2", pid=73)), [0, 1, 2, 3, -1]),
        # a communicator that is split off, and a smaller one, number their own members
        ((*WORLD, init(1, 72, n=2, form=SPLIT)), [0, 1, 2, 3, 2]),
        ((*WORLD, init(0, 80, n=2)), [0, 1, 2, 3, -1]),
        # two processes of one number are two lives, or two jobs; of one process two numbers: none
        ((*WORLD, init(1, 72)), [0, 1, -1, 3, -1]),
    ],
)  # fmt: skip
def test_the_rank_of_each_line(lines: tuple[str, ...], found: list[int]) -> None:
    assert ranks_in(job_log(*lines)) == found


@pytest.mark.parametrize(
    ("prefixes", "found"),
    [
        (("[1,0]<stderr>:", "[1,1]<stderr>:"), [0, 1, 1]),
        # two processes of one task: it is a node, or a launcher of its own
        (("[1,1]<stderr>:", "[1,1]<stderr>:"), [-1, -1, -1]),
    ],
)
def test_a_task_is_a_rank_where_each_is_one_process(
    prefixes: tuple[str, str], found: list[int]
) -> None:
    version = "n1:{}:9 [0] NCCL INFO Using network Socket"
    lines = [f"{prefix}{version.format(70 + k)}" for k, prefix in enumerate(prefixes)]
    assert ranks_in(job_log(*lines, "[1,1]<stderr>:CUDA error: x")) == found


def test_a_task_is_no_rank_where_another_launcher_runs_in_it() -> None:
    version = "n{0}:7{0}:9 [0] NCCL INFO Using network Socket"
    lines = [f"[1,{task}]<stderr>:{version.format(task)}" for task in range(2)]
    assert ranks_in(job_log(*lines, "[1,1]<stderr>:[default3]:CUDA error: x")) == [-1] * 3


def test_local_ranks_are_ranks_of_a_single_node() -> None:
    logs = [job_log("CUDA error: x", file=f"{k}", local_rank=k) for k in range(2)]
    assert ranks_in(*logs, world_size=2) == [0, 1]
    assert ranks_in(*logs, world_size=4) == [-1, -1]
    assert ranks_in(*logs) == [-1, -1]


def test_a_line_about_another_process_is_not_of_the_rank_whose_log_it_is_in() -> None:
    log = job_log("CUDA error: x", SIGNAL.format(pid=5), rank=6)
    assert ranks_in(log) == [6, -1]


@pytest.mark.parametrize(
    ("host", "short"), [("a.b.c", "a"), ("a", "a"), ("10.0.0.1", "10.0.0.1"), ("fe::1", "fe::1")]
)
def test_the_domain_of_a_host_is_left_out(host: str, short: str) -> None:
    assert short_host(host) == short


@pytest.mark.parametrize(("row_host", "found"), [("localhost", ""), ("n7.example", "n7")])
def test_localhost_names_no_host(row_host: str, found: str) -> None:
    row = ("Failures:", "[0]:", "  time      : 2026-11-30_03:12:10", f"  host      : {row_host}",
           "  rank      : 1 (local_rank: 1)", "  exitcode  : -9 (pid: 71) ")  # fmt: skip
    ranks = ranks_of((job_log(*row),), 4)
    assert ranks.claims
    assert ranks.host_of(1) == found
