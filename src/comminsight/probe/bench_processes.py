"""Runs launches and leaves no process of them behind, however they end."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

MARK = "COMMINSIGHT_BENCH_LAUNCH"
GRACE_S = 10.0
GONE_S = 5.0
# as PyTorch's launcher and as mpirun say how a rank ended
RANK_ENDED = re.compile(r"exitcode\s{0,8}: (-?\d{1,3})\b|exited on signal (\d{1,3})\b", re.ASCII)


class Job:
    """One launcher with its ranks.

    A launcher may start each rank in a session of its own, where no signal to a process group
    reaches it: the ranks are known by a mark in their environment, which also those carry that
    lost their launcher.
    """

    def __init__(self, words: Sequence[str], variables: dict[str, str], log: Path) -> None:
        """Starts it; ``log``, which must not be there, gets all that it and its ranks say."""
        self.mark = secrets.token_hex(8)
        self.log = log
        with log.open("xb") as sink:
            self.launcher = subprocess.Popen(
                words, env=variables | {MARK: self.mark}, stdout=sink, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def failure(self) -> str:
        """How the launcher failed; empty while it runs and when it did not."""
        code = self.launcher.poll()
        return f"the launcher ended with {code}{self._first_rank()}" if code else ""

    @property
    def has_ended(self) -> bool:
        """Whether the launcher is gone; ranks may be left."""
        return self.launcher.poll() is not None

    def _first_rank(self) -> str:
        """What the launcher says of the rank that failed first."""
        said = RANK_ENDED.findall(self.log.read_text(encoding="utf-8", errors="replace"))
        if not said:
            return ""
        code, signal_number = said[-1]
        return f", a rank with {code or f'signal {signal_number}'}"


def end(jobs: Sequence[Job]) -> None:
    """Ask all launchers to end their ranks, then kill what is left of any."""
    running = [job.launcher for job in jobs if not job.has_ended]
    for launcher in running:
        launcher.terminate()
    deadline = time.monotonic() + GRACE_S
    for launcher in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(timeout=max(0.0, deadline - time.monotonic()))
    _kill_marked({job.mark for job in jobs})
    for job in jobs:
        if not job.has_ended:
            job.launcher.kill()
        job.launcher.wait()


def marked(marks: set[str]) -> list[int]:
    """Processes whose environment has one of the marks; without /proc none is seen."""
    wanted = {f"{MARK}={mark}".encode() for mark in marks}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if not wanted.isdisjoint((folder / "environ").read_bytes().split(b"\0")):
                found.append(int(folder.name))
    return found


def _kill_marked(marks: set[str]) -> None:
    deadline = time.monotonic() + GONE_S
    while (left := marked(marks)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
