"""How a rank waits for its turn: the ranks' end of the pipes that ``bench_rounds`` holds.

A rank that waits sleeps in a read: it burns no processor while another launch has its turn. Each
rank writes its times to a file of its own, so that a killed job leaves its part.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, TextIO

DONE_PIPE = "done"
GATE_PIPE = "gate"  # + rank
TIMES = "rank{}.jsonl"
WARM_UP = b"w"
COUNTED = b"c"
END = b"e"
ANSWER = b"."
# milliseconds of a call, and those that a thread stood in line for a core (below 0: not known)
Timed = tuple[float, float]
WAKE_S = 0.012  # some ticks of the scheduler


class CoreWaits:
    """How long each thread of this process stood in line for a core, as the scheduler counts."""

    def __init__(self) -> None:
        """The threads that live now; none where the system does not tell."""
        self._files: list[int] = []
        for path in Path("/proc/self/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                self._files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def read_ns(self) -> list[int]:
        """One number a thread, 0 for one that has ended."""
        return [_second_number(file) for file in self._files]

    def close(self) -> None:
        """Give the files back."""
        for file in self._files:
            os.close(file)


def _second_number(file: int) -> int:
    try:
        return int(os.pread(file, 128, 0).split()[1])
    except (OSError, IndexError, ValueError):
        return 0


class Turns:
    """A rank's turns."""

    def __init__(self, gate: FileIO, done: FileIO, times: TextIO, waits: CoreWaits) -> None:
        self._gate = gate
        self._done = done
        self._times = times
        self._waits = waits

    def begin(self, head: Mapping[str, object]) -> Iterator[bool]:
        """Write ``head``, say that this rank is ready, then yield once for each round: whether its
        times count. Raises EOFError when the benchmark that started this rank is gone."""
        self._write(head)
        while True:
            self._done.write(ANSWER)
            word = self._gate.read(1)
            if word == END:
                return
            if not word:
                raise EOFError("the benchmark that started this rank is gone")
            _wake()
            yield word == COUNTED

    def timed(self, call: Callable[[], Any], finished: Callable[[], Any] | None = None) -> Timed:
        """One call, until ``finished`` returns."""
        before = self._waits.read_ns()
        start_ns = time.perf_counter_ns()
        call()
        if finished is not None:
            finished()
        end_ns = time.perf_counter_ns()
        after = self._waits.read_ns()
        waited_ns = max(
            (late - early for early, late in zip(before, after, strict=True)), default=-1
        )
        return (end_ns - start_ns) / 1e6, waited_ns / 1e6

    def keep(self, timed: list[Timed]) -> None:
        """Write a round that counts."""
        self._write(timed)

    def _write(self, value: object) -> None:
        self._times.write(json.dumps(value) + "\n")
        self._times.flush()


def _wake() -> None:
    """Be busy for a moment: ranks that are woken together may stand on one core, and one of them
    would wait for the scheduler in the first call."""
    until = time.perf_counter() + WAKE_S
    while time.perf_counter() < until:
        pass


@contextlib.contextmanager
def turns_of(folder: Path, rank: int) -> Iterator[Turns]:
    """The turns of this rank, with its pipes and its file in ``folder`` open."""
    with (
        Path(folder, f"{GATE_PIPE}{rank}").open("rb", buffering=0) as gate,
        Path(folder, DONE_PIPE).open("wb", buffering=0) as done,
        Path(folder, TIMES.format(rank)).open("w", encoding="utf-8") as times,
    ):
        waits = CoreWaits()
        try:
            yield Turns(gate, done, times, waits)
        finally:
            waits.close()
