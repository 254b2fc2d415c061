"""Who failed first by the logs, who only repeats it, and when nobody can tell."""

from __future__ import annotations

import pytest

from comminsight.diagnosis.log_origin import LogOrigin, log_origin
from comminsight.model.job_evidence import JobEvidence, JobLog
from tests.unit.analysis.log_texts import job_log

GPU = "CUDA error: an illegal memory access was encountered"
TIMEOUT = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, "
    "NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600020 milliseconds before timing out."
)
CLOSED = "[/x/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4"
CLOSING = "Sending process 71 closing signal SIGTERM"
CANCELLED = "slurmstepd: error: *** STEP 77.1 ON n1 CANCELLED AT 2026-04-14T16:00:01 ***"
HEAD, FRAME = "Traceback (most recent call last):", '  File "a.py", line 1, in f'


def at(second: float, rank: int, text: str) -> str:
    minutes, seconds = divmod(second, 60)
    return f"[rank{rank}]:[E0414 16:{minutes:02.0f}:{seconds:09.6f} P.cpp:1] {text}"


def said(rank: int, *texts: str) -> tuple[str, ...]:
    return tuple(f"[rank{rank}]: {text}" for text in texts)


def raised(rank: int, end: str) -> tuple[str, ...]:
    return said(rank, HEAD, FRAME, end)


def origin(*logs: JobLog, world_size: int = 4) -> LogOrigin:
    return log_origin(JobEvidence(world_size=world_size, logs=logs))


def ranks(found: LogOrigin) -> tuple[list[int], list[int], list[int]]:
    """Those that failed first, the candidates, and those that went on after a fault."""
    return (
        [line.rank for line in found.first],
        [line.rank for line in found.candidates],
        [line.rank for line in found.doubted],
    )


@pytest.mark.parametrize(
    ("lines", "first", "candidates", "doubted"),
    [
        # a fault, and the others time out
        ((at(10, 3, GPU), at(620, 0, TIMEOUT)), [3], [], []),
        # the same in another order of the lines: stamps count
        ((at(620, 0, TIMEOUT), at(10, 3, GPU)), [3], [], []),
        # without stamps the kind of line counts
        ((*said(0, TIMEOUT), *said(3, GPU)), [3], [], []),
        # a fault after the own complaint, and one after a time limit of another rank
        ((*said(3, TIMEOUT), *said(3, GPU)), [], [], []),
        ((at(620, 0, TIMEOUT), at(630, 3, GPU)), [], [], []),
        # two faults: the earlier one, or neither
        ((at(10, 3, GPU), at(20, 2, GPU)), [3], [], []),
        ((at(10, 3, GPU), at(10.5, 2, GPU)), [], [2, 3], []),
        ((*said(3, GPU), *said(2, GPU)), [], [2, 3], []),
        # an exception ends a rank where others miss it; alone it may have been caught
        ((*raised(2, "ValueError: odd"), *said(0, CLOSED)), [2], [], []),
        ((*raised(2, "ValueError: odd"), "[rank1]: CUDA"), [], [], [2]),
        # a rank that waits for the others afterwards has survived it
        ((*raised(2, "ValueError: odd"), *said(2, TIMEOUT), *said(0, TIMEOUT)), [], [], [2]),
        # an exception about communication is an echo
        ((*raised(2, "RuntimeError: NCCL error: remote"), *said(0, CLOSED)), [], [], []),
    ],
)  # fmt: skip
def test_lines_of_one_file(
    lines: tuple[str, ...], first: list[int], candidates: list[int], doubted: list[int]
) -> None:
    assert ranks(origin(job_log(*lines))) == (first, candidates, doubted)


def test_files_without_a_zone_are_ordered_by_the_kind_of_their_lines_alone() -> None:
    logs = [
        job_log(at(10, rank, GPU), file=f"{rank}", rank=rank, host=f"n{rank}") for rank in (2, 3)
    ]
    assert ranks(origin(*logs)) == ([], [2, 3], [])


@pytest.mark.parametrize(
    ("first_line", "found"),
    [("", [1]), (CLOSING, []), (CANCELLED, [])],
)
def test_who_is_killed_after_its_job_was_ended_began_nothing(
    first_line: str, found: list[int]
) -> None:
    init = "n1:7{0}:9 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {0} nranks 2 cudaDev 0 busId 1 commId 0x9 - Init START"  # noqa: E501
    killed = "failed (exitcode: -9) local_rank: 1 (pid: 71) of binary: python"
    lines = [init.format(0), init.format(1), first_line, killed, *said(0, CLOSED)]
    assert ranks(origin(job_log(*lines), world_size=2))[0] == found


@pytest.mark.parametrize(
    ("done", "waiting", "left"),
    [
        ((0, 1), (2, 3), [0, 1]),
        ((0,), (2, 3), []),  # one is silent: all may wait for it
        ((0, 1, 2, 3), (), []),
        ((0, 1), (1, 2, 3), [0]),
    ],
)
def test_ranks_that_ended_well_are_told_where_all_others_wait(
    done: tuple[int, ...], waiting: tuple[int, ...], left: list[int]
) -> None:
    init = "n1:7{0}:9 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {0} nranks 4 cudaDev 0 busId 1 commId 0x9 - Init START"  # noqa: E501
    lines = [init.format(rank) for rank in range(4)]
    lines += [f"Process 7{rank} exits successfully." for rank in done]
    lines += [line for rank in waiting for line in said(rank, TIMEOUT)]
    assert [line.rank for line in origin(job_log(*lines)).left] == left


def test_faults_of_unknown_processes_are_kept_apart() -> None:
    found = origin(job_log("python[77]: segfault at 10 ip 00007f sp 00007e error 4"))
    assert [line.event.pid for line in found.nameless] == [77]
    assert ranks(found) == ([], [], [])
    assert origin(job_log(HEAD, FRAME, "ValueError: odd")).nameless == ()
