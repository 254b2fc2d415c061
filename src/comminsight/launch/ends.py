"""When and how each recorded process ends: who was first, and by which signal or code.

A launcher that loses one rank ends all others within a moment, and afterwards they look alike.
The kernel wakes us at each end; the status is read from the process table before the parent has
reaped the process. Nothing is traced and nobody is stopped.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from comminsight.capture.process import PROC, is_running
from comminsight.model.manifest import ProcessEnd

EXIT_CODE_FIELD = 49  # of /proc/PID/stat after the command name: field 52 of proc(5)


@dataclass(slots=True)
class EndWatch:
    """Waits, in a thread of its own, for the processes that ``follow`` was told of."""

    _followed: set[str] = field(default_factory=set)
    _waiting: dict[int, tuple[str, int]] = field(default_factory=dict)  # pidfd: (session, pid)
    _ends: list[ProcessEnd] = field(default_factory=list)
    _poll: select.poll = field(default_factory=select.poll)
    _news: int = field(default_factory=lambda: os.eventfd(0, os.EFD_CLOEXEC))
    _is_over: bool = False
    _thread: threading.Thread | None = None

    def follow(self, processes: Iterable[tuple[str, int, int]]) -> None:
        """Watch these (session_id, pid, start_ticks) too; each once, and only while it lives."""
        for session_id, pid, ticks in processes:
            if session_id in self._followed:
                continue
            self._followed.add(session_id)
            with contextlib.suppress(OSError):  # it has ended, or this kernel has no pidfds
                descriptor = os.pidfd_open(pid)
                self._waiting[descriptor] = (session_id, pid)
                # asked after the descriptor holds the process: from here on it cannot be reused
                if is_running(pid, ticks):
                    self._poll.register(descriptor, select.POLLIN)
                    os.eventfd_write(self._news, 1)
        if self._waiting and self._thread is None:
            self._poll.register(self._news, select.POLLIN)
            self._thread = threading.Thread(target=self._run, name="ends", daemon=True)
            self._thread.start()

    def close(self) -> tuple[ProcessEnd, ...]:
        """The ends that were seen, in their order."""
        self._is_over = True
        if self._thread is not None:
            os.eventfd_write(self._news, 1)
            self._thread.join()
        for descriptor in (self._news, *self._waiting):
            os.close(descriptor)
        self._waiting.clear()
        return tuple(self._ends)

    def _run(self) -> None:
        """Ends that are there when the watch is closed are still taken."""
        is_last = False
        while not is_last:
            is_last = self._is_over
            for descriptor, _ in self._poll.poll(0 if is_last else None):
                if descriptor == self._news:  # a process to follow: poll again, with it
                    os.eventfd_read(descriptor)
                    continue
                self._poll.unregister(descriptor)
                session_id, pid = self._waiting[descriptor]
                self._ends.append(process_end(session_id, pid))


def process_end(session_id: str, pid: int) -> ProcessEnd:
    """The end of a process that has just ended; its status is -1 once the parent has reaped it."""
    ended_ns = time.monotonic_ns()
    status = exit_status(pid)
    if status is None:
        return ProcessEnd(session_id=session_id, ended_mono_ns=ended_ns)
    return ProcessEnd(
        session_id=session_id,
        ended_mono_ns=ended_ns,
        exit_code=status >> 8 & 0xFF,
        exit_signal=status & 0x7F,
    )


def exit_status(pid: int) -> int | None:
    """The wait status of a zombie, None when it is gone or not ours to read."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    is_zombie = fields[0] in {"Z", "X"}
    return int(fields[EXIT_CODE_FIELD]) if is_zombie and len(fields) > EXIT_CODE_FIELD else None
