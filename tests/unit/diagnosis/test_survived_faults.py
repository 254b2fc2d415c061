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
