"""Faults that a job plants in itself; each is written into the truth file."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable

from comminsight.lab.options import JobOptions
from comminsight.lab.truth import Truth

SIGNALS = {"sigkill": signal.SIGKILL, "sigstop": signal.SIGSTOP}


class PlantedError(RuntimeError):
    """The exception of ``--exit-how exception``."""


def load_next_batch_forever(seconds: float) -> None:
    """Where a stopped rank sits: the name tells in a stack what it is stuck in."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(min(0.2, seconds))


class Faults:
    """The faults of one rank, each at its place in the step."""

    def __init__(self, options: JobOptions, rank: int, truth: Truth) -> None:
        self._options = options
        self._rank = rank
        self._truth = truth
        wants_freezer = options.slow_rank == rank and options.slow_ms > 0
        self._freeze = start_freezer(options.slow_ms / 1000) if wants_freezer else None

    def at_step(self, step: int) -> None:
        """Before the step's first op: the rank may stay away or leave."""
        options = self._options
        if (self._rank, step) == (options.stop_rank, options.stop_at):
            self._truth.write("stop", step=step, begin_ns=time.monotonic_ns())
            load_next_batch_forever(options.stop_seconds)
        if (self._rank, step) == (options.exit_rank, options.exit_at):
            self._truth.write("exit", step=step, how=options.exit_how, begin_ns=time.monotonic_ns())
            leave_after(options.exit_after_ms / 1000, options.exit_how)

    def compute(self, step: int, share: int = 1) -> None:
        """In a forward pass: compute, longer on the late rank (``share`` passes make a step)."""
        if self._options.compute_ms > 0:
            time.sleep(self._options.compute_ms / 1000)
        if self._options.wander_ms > 0 and self._rank == wandering(self._options.seed, step):
            with self._truth.interval("late", step=step):
                time.sleep(self._options.wander_ms / 1000 / share)
        is_late = self._options.late_rank == self._rank and step >= self._options.late_from
        if is_late and self._options.late_ms > 0:
            with self._truth.interval("late", step=step):
                time.sleep(self._options.late_ms / 1000 / share)

    def in_transfer(self, step: int) -> None:
        """Right after the op was entered: freeze the whole process, its gloo threads too."""
        if self._freeze is not None and step >= self._options.slow_from:
            with self._truth.interval("slow", step=step):
                self._freeze()


def wandering(seed: int, step: int) -> int:
    """The rank whose turn it is to be late in this step; the same on all ranks."""
    return random.Random(f"{seed} {step}").randrange(int(os.environ["WORLD_SIZE"]))


def leave_after(seconds: float, how: str) -> None:
    """``leave``, by a timer where there is a delay: it then strikes wherever the rank is."""
    if seconds <= 0:
        leave(how)
        return
    timer = threading.Timer(seconds, leave, (how,))
    timer.daemon = True
    timer.start()


def leave(how: str) -> None:
    """End this process in one of the ways in which ranks end, or stop it (``sigstop``)."""
    if how in SIGNALS:
        os.kill(os.getpid(), SIGNALS[how])
        return
    if how == "clean":
        sys.exit(0)
    if how == "os_exit_clean":
        os._exit(0)
    if how == "sys_exit":
        sys.exit(7)
    if how == "os_exit":
        os._exit(9)
    raise PlantedError("planted: this rank fails")


def start_freezer(seconds: float) -> Callable[[], None]:
    """A function that stops this process for ``seconds``.

    A child does the stopping: a stopped process cannot wake itself. It ends with its parent's pipe.
    """
    request_fd, ask_fd = os.pipe()
    answer_fd, tell_fd = os.pipe()
    frozen = os.getpid()
    if os.fork() == 0:
        os.close(ask_fd)
        while os.read(request_fd, 1):
            os.kill(frozen, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(frozen, signal.SIGCONT)
            os.write(tell_fd, b"t")
        os._exit(0)
    os.close(request_fd)
    os.close(tell_fd)

    def freeze() -> None:
        os.write(ask_fd, b"f")
        os.read(answer_fd, 1)

    return freeze
