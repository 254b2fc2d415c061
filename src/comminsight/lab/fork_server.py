"""``python -m comminsight.lab.fork_server SOCKET``: starts the ranks of jobs as forks of itself.

torch is imported once, gloo never in here. A request (one line of JSON from ``ask.py``: see
``Request``) is a job; several may run at a time. The server stands for the job's launcher: when a
rank fails it ends the others, when it is asked to stop, or a job lasts too long, it has the ranks
dump their Flight Recorders and ends them. Ends are reaped late, so that whoever watches can read
them.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch._C import _distributed_c10d

from comminsight.lab import job
from comminsight.lab.options import parse
from comminsight.lab.pool import free_port, place_of

POLL_S = 0.02
DUMP_S = 2.0  # a rank that is stopped leaves no dump
NOTICE_S = 0.1  # how soon a launcher sees that a rank has failed
GRACE_S = 1.0  # between SIGTERM and SIGKILL
REAP_S = 3.0
LONGEST_REQUEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """A job: arguments of ``lab.job``, ranks, folder for dumps, log and truth. ``timeout_s`` ends
    it with dumps, ``kill_s`` without any; ``dump_s`` dumps while it goes on. 0: never."""

    arguments: tuple[str, ...]
    ranks: int
    folder: str
    environment: dict[str, str]
    timeout_s: float = 60.0
    kill_s: float = 0.0
    dump_s: float = 0.0


@dataclass(slots=True)
class RunningJob:
    """One job. ``doom_s``: when the ranks are ended; 0 while they are to live."""

    request: Request
    asker: socket.socket
    dump_fd: int
    begin_s: float
    pids: list[int] = field(default_factory=list)
    codes: dict[int, int] = field(default_factory=dict)
    doom_s: float = 0.0
    _is_terminated: bool = False

    @property
    def is_over(self) -> bool:
        """True when every rank has ended."""
        return len(self.codes) == len(self.pids)

    def look(self, now_s: float) -> None:
        """See who has ended, and what is due."""
        for pid in self.pids:
            if pid not in self.codes:
                self._note_end(pid)
        age_s, request = now_s - self.begin_s, self.request
        if any(self.codes.values()):
            self.doom_s = self.doom_s or now_s + NOTICE_S
        if 0 < request.kill_s <= age_s:
            self.doom_s = self.doom_s or now_s
        if 0 < request.dump_s <= age_s:
            self.dump()
        if self._is_asked() or age_s > request.timeout_s:
            self.dump()
            self.doom_s = self.doom_s or now_s + DUMP_S
        if self.doom_s:
            self._end(now_s)

    def _note_end(self, pid: int) -> None:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            is_exit = ended.si_code == os.CLD_EXITED
            self.codes[pid] = ended.si_status if is_exit else 128 + ended.si_status

    def _is_asked(self) -> bool:
        return bool(select.select([self.asker], [], [], 0)[0])

    def dump(self) -> None:
        """All ranks see the pipe end, and dump; once."""
        if self.dump_fd >= 0:
            os.close(self.dump_fd)
            self.dump_fd = -1

    def _end(self, now_s: float) -> None:
        n_dumps = sum(1 for _ in Path(self.request.folder).glob("dumps/rank_*[0-9]"))
        is_dumped = n_dumps >= len(self.pids) - len(self.codes)
        if not self._is_terminated and (now_s >= self.doom_s or (self.dump_fd < 0 and is_dumped)):
            self._is_terminated = True
            self.doom_s = now_s
            self.signal(signal.SIGTERM)
        if self._is_terminated and now_s > self.doom_s + GRACE_S:
            self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """To every rank that lives."""
        for pid in self.pids:
            if pid not in self.codes:
                os.kill(pid, number)

    def close(self) -> None:
        """Tell who asked."""
        self.dump()
        code = max(self.codes.values(), default=1)
        with contextlib.suppress(OSError):  # whoever asked may be gone
            self.asker.sendall(f"{code}\n".encode())
        self.asker.close()


@dataclass(slots=True)
class ForkServer:
    """All jobs that run now, and those whose ends are still to be reaped."""

    listener: socket.socket
    jobs: list[RunningJob] = field(default_factory=list)
    ended: list[tuple[float, RunningJob]] = field(default_factory=list)

    def serve(self) -> None:
        """Until the parent process is gone."""
        parent = os.getppid()
        while os.getppid() == parent:
            if select.select([self.listener], [], [], POLL_S)[0]:
                self.begin(self.listener.accept()[0])
            now_s = time.monotonic()
            for one in [one for one in self.jobs if self._is_over(one, now_s)]:
                one.close()
                self.jobs.remove(one)
                self.ended.append((now_s + REAP_S, one))
            self._reap(now_s)
        for one in self.jobs:
            one.signal(signal.SIGKILL)

    def _is_over(self, one: RunningJob, now_s: float) -> bool:
        one.look(now_s)
        return one.is_over

    def _reap(self, now_s: float) -> None:
        for due_s, one in [entry for entry in self.ended if entry[0] < now_s]:
            for pid in one.pids:
                os.waitpid(pid, 0)
            self.ended.remove((due_s, one))

    def begin(self, asker: socket.socket) -> None:
        """Fork the ranks of the job that is asked for."""
        fields = json.loads(asker.makefile().readline(LONGEST_REQUEST))
        request = Request(**fields | {"arguments": tuple(fields["arguments"])})
        read_fd, write_fd = os.pipe()
        one = RunningJob(request, asker, write_fd, time.monotonic())
        self.jobs.append(one)
        port = free_port()
        for rank in range(request.ranks):
            pid = os.fork()
            if not pid:
                self._be_rank(request, rank, port, read_fd)
            one.pids.append(pid)
        os.close(read_fd)

    def _be_rank(self, request: Request, rank: int, port: int, dump_fd: int) -> None:
        """The life of a forked rank; never returns."""
        self.listener.close()
        for one in self.jobs:
            one.asker.close()
            if one.dump_fd >= 0:
                os.close(one.dump_fd)
        log_fd = os.open(Path(request.folder) / "job.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.environ.update(request.environment | place_of(rank, request.ranks, port))
        target = Path(request.folder) / "dumps" / f"rank_{rank}"
        threading.Thread(target=dump_when_asked, args=(dump_fd, target), daemon=True).start()
        truth = str(Path(request.folder) / "truth.jsonl")
        job.run_job(parse((*request.arguments, "--marks", truth), tuple(job.JOBS)))
        sys.exit(0)


def dump_when_asked(request_fd: int, target: Path) -> None:
    """Write the Flight Recorder of this process once the pipe ends; ``target`` is whole or not
    there."""
    os.read(request_fd, 1)
    part = target.with_suffix(".part")
    part.write_bytes(_distributed_c10d._dump_fr_trace(True, True, False))  # type: ignore[attr-defined]
    part.rename(target)


def main(argv: Sequence[str]) -> int:
    """0 when the parent has ended."""
    (address,) = argv
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        gc.freeze()  # no rank looks through torch's objects when it ends: a second of CPU for each
        ForkServer(listener).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
