"""Looks at the processes of benchmarks that a test started, through /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

HOLDER = "COMMINSIGHT_TEST_HOLDER"
PROGRAMS = {b"comminsight.probe.bench_ranks", b"comminsight.probe.bench_ranks_mpi"}
LAUNCHER = -1


@dataclass(frozen=True)
class Seen:
    """One process: the launcher has rank -1; ``asked`` is NCCL_ALGO."""

    pid: int
    rank: int
    asked: str


def hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the processes that this test starts be known from those of others."""
    monkeypatch.setenv(HOLDER, str(os.getpid()))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))


def processes() -> list[Seen]:
    """Launchers and ranks that live."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            pairs = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        said = dict(pair.partition(b"=")[::2] for pair in pairs)
        if PROGRAMS & {*words} and said.get(HOLDER.encode()) == str(os.getpid()).encode():
            rank = said.get(b"LOCAL_RANK") or said.get(b"OMPI_COMM_WORLD_RANK") or b"-1"
            asked = said.get(b"NCCL_ALGO", b"").decode()
            found.append(Seen(pid=int(folder.name), rank=int(rank), asked=asked))
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Fails when it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def have_begun(n_launches: int = 1, n_ranks: int = 2) -> Callable[[], bool]:
    """Whether so many launches have all their ranks."""

    def begun() -> bool:
        ranks = [one for one in processes() if one.rank != LAUNCHER]
        return len(ranks) >= n_launches * n_ranks

    return begun


def pid_of(rank: int, asked: str = "") -> int:
    """The process of that rank in the launch with that NCCL_ALGO."""
    return next(one.pid for one in processes() if (one.rank, one.asked) == (rank, asked))
