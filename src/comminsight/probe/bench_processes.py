"""Runs one launch and leaves no process of it behind, however it ends."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import time
from pathlib import Path

MARK = "COMMINSIGHT_BENCH_LAUNCH"
GRACE_S = 10.0
GONE_S = 5.0
RANK_ENDED = re.compile(r"exitcode\s{0,8}: (-?\d{1,3})\b", re.ASCII)


def launched(words: list[str], variables: dict[str, str], log: Path, timeout_s: float) -> str:
    """How the launch failed, empty when it did not.

    A launcher starts each rank in a session of its own, where no signal to a process group
    reaches it: the ranks are known by a mark in their environment, which also those carry that
    lost their launcher.
    """
    mark = secrets.token_hex(8)
    with log.open("xb") as sink:
        job = subprocess.Popen(
            words, env=variables | {MARK: mark}, stdout=sink, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            code = job.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return f"not done after {timeout_s:g} s"
        finally:
            _end(job, mark)
    return f"the launcher ended with {code}{_first_rank(log)}" if code else ""


def marked(mark: str) -> list[int]:
    """Processes whose environment has the mark; without /proc none is seen."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _end(job: subprocess.Popen[bytes], mark: str) -> None:
    """Ask the launcher to end its ranks, then kill what is left."""
    if job.poll() is None:
        job.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(timeout=GRACE_S)
    deadline = time.monotonic() + GONE_S
    while (left := marked(mark)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    if job.poll() is None:
        job.kill()
    job.wait()


def _first_rank(log: Path) -> str:
    """What the launcher says of the rank that failed first."""
    said = RANK_ENDED.findall(log.read_text(encoding="utf-8", errors="replace"))
    return f", a rank with {said[-1]}" if said else ""
