"""Faults that a process lived through accuse nobody; the same faults with which it ended do."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.model.verdict import Cause
from comminsight.pipeline.diagnose import diagnose

ILLEGAL = "CUDA error: an illegal memory access was encountered"
CLOSED = "n1:1000:1500 [0] NCCL WARN socketProgress: Connection closed by remote peer n1<40000>\n"
RAISED = (
    "{0}Traceback (most recent call last):\n"
    '{0}  File "/app/data.py", line 10, in fetch\n'
    "{0}ValueError: bad shard\n"
)
FAILED = "E0303 10:05:02.000000 9 api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 1001) of b\n"


def init(rank: int, life: int = 1) -> str:
    pid = 1000 * life + rank
    return (
        f"n1:{pid}:{pid} [{rank}] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks 3 "
        f"cudaDev {rank} nvmlDev {rank} busId {0x3B000 + 16 * rank:x} commId 0xa - Init COMPLETE\n"
    )


def destroyed(rank: int) -> str:
    return (
        f"n1:{1000 + rank}:{1000 + rank} [{rank}] NCCL INFO comm 0x5{rank} rank {rank} nranks 3 "
        f"cudaDev {rank} busId {0x3B000 + 16 * rank:x} - Destroy COMPLETE\n"
    )


def accused(folder: Path, texts: dict[str, str]) -> list[tuple[Cause, tuple[int, ...]]]:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = diagnose([folder]).verdicts
    return [(one.cause, one.culprits) for one in found if one.cause is not Cause.NO_VERDICT]


def logs_of(odd: str, *, peers: str = CLOSED) -> dict[str, str]:
    return {f"rank{r}.log": init(r) + (odd if r == 1 else peers) for r in range(3)}


@pytest.mark.parametrize(
    ("odd", "extra", "is_dead"),
    [
        (f"step 1\nRuntimeError: {ILLEGAL}\n", "", True),
        (f"step 1\n{ILLEGAL}\n", "", True),
        (f"[core.py:40] RuntimeError: {ILLEGAL}\n", "", True),
        (f"user: I get RuntimeError: {ILLEGAL}, why?\nstep 2\n", "", False),
        (f"user: I get RuntimeError: {ILLEGAL}, why?\n", "", False),
        (f"training failed: {ILLEGAL}\n", FAILED, True),
        ("no room (CUDA out of memory. Tried to allocate 2.00 GiB), halved\nstep 2\n", "", False),
        (RAISED.format(""), "", True),
        (RAISED.format("") + "step 2\n", "", False),
        (RAISED.format("[rank1]: ") + "step 2 of another thread\n", "", True),
        (RAISED.format("") + "step 2\n", FAILED, True),
    ],
)
def test_a_fault_counts_where_the_process_ended_with_it(
    tmp_path: Path, odd: str, extra: str, is_dead: bool
) -> None:
    found = accused(tmp_path, logs_of(odd) | {"launcher.log": extra})
    assert found == ([(Cause.RANK_DEAD, (1,))] if is_dead else [])


@pytest.mark.parametrize("fault", [RAISED.format(""), f"user: {ILLEGAL}\n"])
def test_an_end_in_order_after_a_fault_shows_that_it_was_survived(
    tmp_path: Path, fault: str
) -> None:
    texts = {f"rank{r}.log": init(r) + fault * (r == 1) + destroyed(r) for r in range(3)}
    assert accused(tmp_path, texts) == []


def test_a_caught_exception_does_not_hide_who_was_killed(tmp_path: Path) -> None:
    killed = (
        "mpirun noticed that process rank 2 with PID 1002 on node n1 exited on signal 9 (Killed)."
    )
    odd = "WARNING CUDA out of memory. Tried to allocate 2.00 GiB. halved\nstep 2\n"
    assert accused(tmp_path, logs_of(odd) | {"mpi.log": killed}) == [(Cause.RANK_DEAD, (2,))]


def timeout(rank: int) -> str:
    return (
        f"[rank{rank}]:[E303 10:11:40.000000000 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog "
        "caught collective operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=9, "
        "NumelOut=9, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
    )


@pytest.mark.parametrize(
    ("stamp", "line", "is_dead"),
    [
        ("Mar  3", "Out of memory: Killed process 1001 (python) total-vm:1kB", True),
        ("Jan  3", "Out of memory: Killed process 1001 (python) total-vm:1kB", False),
        ("Mar  3", "python[1001]: segfault at 0 ip 0 sp 0 error 4 in libc.so.6[7f+1]", True),
        ("Feb  3", "python[1001]: segfault at 0 ip 0 sp 0 error 4 in libc.so.6[7f+1]", False),
        ("Mar  3", "NVRM: Xid (PCI:0000:3b:01): 79, pid=1001, name=python, GPU is gone", True),
        ("Mar  3", "NVRM: Xid (PCI:0000:3b:01): 79, pid=88, name=python, GPU is gone", True),
        ("Feb  3", "NVRM: Xid (PCI:0000:3b:01): 79, pid=88, name=python, GPU is gone", False),
        ("", "NVRM: Xid (PCI:0000:3b:01): 79, pid=1001, name=python, GPU is gone", True),
        ("", "NVRM: Xid (PCI:0000:3b:01): 79, pid=88, name=python, GPU is gone", False),
    ],
)
def test_what_the_kernel_says_counts_on_the_days_of_the_job(
    tmp_path: Path, stamp: str, line: str, is_dead: bool
) -> None:
    prefix = f"{stamp} 10:01:40 n1 kernel: " if stamp else "[ 1234.567890] "
    texts = {f"rank{r}.log": init(r) + (timeout(r) if r != 1 else "") for r in range(3)}
    found = accused(tmp_path, texts | {"dmesg.txt": prefix + line + "\n"})
    assert found == ([(Cause.RANK_DEAD, (1,))] if is_dead else [])


def test_a_rank_that_wrote_that_it_had_waited_was_killed_after_that(tmp_path: Path) -> None:
    texts = {f"rank{r}.log": init(r) + (timeout(r) if r != 2 else "") for r in range(3)}
    late = "Mar  3 10:01:40 n1 kernel: Out of memory: Killed process 1001 (python) total-vm:1kB\n"
    assert accused(tmp_path, texts | {"dmesg.txt": late}) == []


def test_what_is_written_after_somebody_ended_the_job_began_nothing(tmp_path: Path) -> None:
    ended = "W0303 10:05:00.000000 9 api.py:719] Received Signals.SIGINT death signal, shutting\n"
    raised = RAISED.format("[rank1]: ")
    killed = raised.replace(
        "bad shard", "DataLoader worker (pid 7) is killed by signal: Interrupt."
    )
    whole = "".join(init(rank) for rank in range(3))
    assert accused(tmp_path, {"out.log": whole + ended + raised}) == []
    assert accused(tmp_path, {"out.log": whole + killed}) == []
    assert accused(tmp_path, {"out.log": whole + raised + CLOSED}) == [(Cause.RANK_DEAD, (1,))]


@pytest.mark.parametrize("label", ["[default{}]:", "[rank{}]:", "{}: "])
def test_a_traceback_in_a_log_of_all_ranks_counts_with_the_status_of_its_process(
    tmp_path: Path, label: str
) -> None:
    texts = [init(rank) + RAISED.format("") * (rank == 1) + "step 2\n" for rank in range(3)]
    lines = [label.format(r) + line for r, own in enumerate(texts) for line in own.splitlines()]
    whole = "\n".join(lines) + "\n"
    whole += "".join(label.format(rank) + timeout(rank) for rank in (0, 2))
    assert accused(tmp_path, {"all.log": whole}) == []
    found = accused(tmp_path, {"all.log": whole, "launcher.log": FAILED})
    assert found == [(Cause.RANK_DEAD, (1,))]


def test_who_waited_and_ended_in_order_shows_that_what_it_waited_for_came(tmp_path: Path) -> None:
    stuck = (
        "[rank1]:[W303 10:11:40.000000000 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) "
        "Rank 1] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress\n"
    )
    texts = {f"rank{r}.log": init(r) + stuck * (r == 1) + destroyed(r) for r in range(3)}
    assert accused(tmp_path, texts) == []


@pytest.mark.parametrize(("life", "found"), [(1, [(Cause.RANK_DEAD, (1,))]), (5, [])])
def test_who_ended_in_another_life_left_nobody_waiting(
    tmp_path: Path, life: int, found: list[tuple[Cause, tuple[int, ...]]]
) -> None:
    ended = {"a/rank1.log": init(1) + destroyed(1)}
    waiting = {f"b/rank{r}.log": init(r, life) + timeout(r) for r in (0, 2)}
    other = {f"b/rank{r}.log": init(r, life) for r in (0, 1, 2)}
    assert accused(tmp_path, other | waiting | ended) == found
