"""How a rank waits for its turn: the ranks' end of the pipes that ``bench_rounds`` holds.

A rank that waits sleeps in a read: it burns no processor while another launch has its turn. Each
rank writes its times to a file of its own, so that a killed job leaves its part.
"""

from __future__ import annotations

import contextlib
import json
import resource
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
Timed = tuple[float, int]  # milliseconds, and how often the scheduler took the rank off its core
WAKE_S = 0.012  # some ticks of the scheduler


def timed(call: Callable[[], Any], finished: Callable[[], Any] | None = None) -> Timed:
    """One call, until ``finished`` returns."""
    before = _preemptions()
    start_ns = time.perf_counter_ns()
    call()
    if finished is not None:
        finished()
    end_ns = time.perf_counter_ns()
    return (end_ns - start_ns) / 1e6, _preemptions() - before


def _preemptions() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


class Turns:
    """A rank's turns."""

    def __init__(self, gate: FileIO, done: FileIO, times: TextIO) -> None:
        self._gate = gate
        self._done = done
        self._times = times

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
        yield Turns(gate, done, times)
