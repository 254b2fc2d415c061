"""Runs several launches round by round: one round of each algorithm, then the next round.

NCCL and Open MPI read what algorithm they are asked for once in a process, therefore each algorithm
has its own launch. All launches live at the same time and take turns; the ranks of those that wait
sleep. A machine that becomes slower meanwhile slows all algorithms alike.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from comminsight.model.bench import BenchPlan
from comminsight.probe.bench_commands import command, environment
from comminsight.probe.bench_processes import Job, end
from comminsight.probe.bench_turns import COUNTED, DONE_PIPE, END, GATE_PIPE, WARM_UP

POLL_S = 0.2
INTERRUPTED = "interrupted"
UNENDED = "did not come to its end"  # an error of this machine, which is raised


class Launch:
    """One launch; ``failure`` tells how it ended, empty as long as all went well."""

    def __init__(self, plan: BenchPlan, folder: Path, log: Path, *, timeout_s: float) -> None:
        """Nothing is started yet. ``folder`` is for the pipes and the times of the ranks."""
        self.plan = plan
        self.folder = folder
        self.log = log
        self.failure = ""
        self.job: Job | None = None
        self._timeout_s = timeout_s
        self._spent_s = 0.0
        self._pipes: list[int] = []

    def start(self) -> None:
        """Start the ranks and wait until all are ready."""
        plan_path = self.folder / "plan.json"
        plan_path.write_bytes(msgspec.json.encode(self.plan))
        names = [DONE_PIPE, *(f"{GATE_PIPE}{rank}" for rank in range(self.plan.n_ranks))]
        for name in names:
            path = self.folder / name
            os.mkfifo(path, 0o600)
            # both ends, so that no open waits; ranks see the end of the pipe when we are gone
            self._pipes.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        words = command(self.plan, str(plan_path), str(self.folder))
        self.job = Job(words, environment(os.environ, self.plan), self.log)
        self._await_ranks()

    def turn(self, word: bytes) -> None:
        """Let the ranks do one round and wait for all of them."""
        self._tell(word)
        self._await_ranks()

    def finish(self) -> None:
        """Let the ranks end by themselves."""
        self._tell(END)
        began = time.monotonic()
        while self.job and not self.job.has_ended:
            if self._left_s(began) <= 0:
                self._fail(self._too_long())
                return
            time.sleep(0.02)
        if self.job and (failure := self.job.failure()):
            self._fail(failure)

    def close(self) -> None:
        """Give the pipes back."""
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes.clear()

    def _tell(self, word: bytes) -> None:
        for gate in self._pipes[1:]:
            os.write(gate, word)

    def _await_ranks(self) -> None:
        began = time.monotonic()
        done = self._pipes[0]
        missing = self.plan.n_ranks
        while missing and not self.failure:
            left_s = self._left_s(began)
            if left_s <= 0:
                self._fail(self._too_long())
            elif select.select([done], [], [], min(left_s, POLL_S))[0]:
                missing -= len(os.read(done, missing))
            elif self.job and self.job.has_ended:
                self._fail(self.job.failure() or "the launcher ended before its ranks")
        self._spent_s += time.monotonic() - began

    def _left_s(self, began: float) -> float:
        """Waiting for other launches is not counted."""
        return self._timeout_s - self._spent_s - (time.monotonic() - began)

    def _too_long(self) -> str:
        return f"not done after {self._timeout_s:g} s"

    def _fail(self, reason: str) -> None:
        self.failure = reason
        if self.job:
            end([self.job])


def run_in_rounds(launches: Sequence[Launch]) -> None:
    """Every launch has its rounds, or a failure; none has a process left.

    A failed launch leaves the others their rounds. Each round begins with another launch, so that
    none always comes after the same. KeyboardInterrupt is raised again, after all have ended.
    """
    ended: set[int] = set()
    reason = UNENDED
    try:
        _rounds(launches, ended)
    except KeyboardInterrupt:
        reason = INTERRUPTED
        raise
    finally:
        for number, launch in enumerate(launches):
            if number not in ended:
                launch.failure = launch.failure or reason
        with contextlib.ExitStack() as stack:
            for launch in launches:
                stack.callback(launch.close)
            end([launch.job for launch in launches if launch.job])


def _rounds(launches: Sequence[Launch], ended: set[int]) -> None:
    for launch in launches:
        launch.start()
    plan = launches[0].plan
    for number in range(plan.warmup + plan.repeats):
        first = number % len(launches)
        going = [one for one in (*launches[first:], *launches[:first]) if not one.failure]
        if not going:
            break
        for launch in going:
            launch.turn(COUNTED if number >= plan.warmup else WARM_UP)
    for number, launch in enumerate(launches):
        if not launch.failure:
            launch.finish()
        ended.add(number)
