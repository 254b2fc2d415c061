"""Independent tasks on many cores: ``map_unordered`` with one result per item, whatever happens.

A task takes a small, hashable item (paths and words) and returns a small value (paths and counts);
the data stay in files. It must be idempotent: it may run again after its worker died.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from comminsight.errors import CommInsightError, UsageError

Item = TypeVar("Item")
Value = TypeVar("Value")

MAX_KILLS = 2
_QUEUED_PER_WORKER = 2
_PRELOADED = ["comminsight.pipeline.rebuild_tasks"]


@dataclass(frozen=True, slots=True)
class Ok(Generic[Item, Value]):
    """What a task returned."""

    key: Item
    value: Value


@dataclass(frozen=True, slots=True)
class Err(Generic[Item]):
    """Why there is no value: what the task raised, or that it killed its worker."""

    key: Item
    message: str


class Executor(Protocol):
    """Runs tasks somewhere; close it when done."""

    def map_unordered(
        self, fn: Callable[[Item], Value], items: Iterable[Item], *, retries: int = 2
    ) -> Iterator[Ok[Item, Value] | Err[Item]]:
        """One result per item as they come; a task that raises is tried ``retries`` more times."""
        ...

    def close(self) -> None:
        """Gives back the workers."""
        ...


def attempt(fn: Callable[[Item], Value], item: Item, retries: int) -> Ok[Item, Value] | Err[Item]:
    """The bulkhead around a task, in the worker: an error that input explains is final, any other
    may pass (a full disk, a file system that hiccups)."""
    for left in range(retries, -1, -1):
        try:
            return Ok(item, fn(item))
        except CommInsightError as error:
            return Err(item, str(error))
        except Exception as error:  # noqa: BLE001 - named bulkhead: becomes an Err that is reported
            if left == 0:
                return Err(item, f"{type(error).__name__}: {error}")
    raise AssertionError("unreachable")  # pragma: no cover


class SerialExecutor:
    """Everything in this process, one after the other."""

    def map_unordered(
        self, fn: Callable[[Item], Value], items: Iterable[Item], *, retries: int = 2
    ) -> Iterator[Ok[Item, Value] | Err[Item]]:
        """One result per item, in order."""
        for item in items:
            yield attempt(fn, item, retries)

    def close(self) -> None:
        """Nothing to give back."""


class PoolExecutor:
    """``workers`` processes of this machine, started by a fork server.

    When a worker is killed the pool is built anew and what was under way runs again, each task
    alone, so that a task that kills its worker (out of memory, say) is told from its neighbours.
    After ``MAX_KILLS`` kills that were its own it is given up.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._pool: ProcessPoolExecutor | None = None
        self._has_started = False

    def map_unordered(
        self, fn: Callable[[Item], Value], items: Iterable[Item], *, retries: int = 2
    ) -> Iterator[Ok[Item, Value] | Err[Item]]:
        """One result per item as they come.

        Raises UsageError when the workers cannot start: each imports the script that runs this.
        """
        left = iter(items)
        suspects: deque[Item] = deque()  # were under way when a worker died
        flight: dict[Future[Ok[Item, Value] | Err[Item]], Item] = {}
        kills: dict[Item, int] = {}
        while True:
            while len(flight) < self._workers * _QUEUED_PER_WORKER and not suspects:
                item = next(left, _END)
                if isinstance(item, _End):
                    break
                flight[self._submit(fn, item, retries)] = item
            if suspects and not flight:
                item = suspects.popleft()
                flight[self._submit(fn, item, retries)] = item
            if not flight:
                return
            done, _ = wait(flight, return_when=FIRST_COMPLETED)
            killed = [f for f in done if isinstance(f.exception(), BrokenProcessPool)]
            for future in done:
                if future not in killed:
                    flight.pop(future)
                    yield future.result()
            if killed:
                yield from self._sort_out(flight, suspects, kills)

    def close(self) -> None:
        """Ends the workers; tasks under way are finished first."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _submit(
        self, fn: Callable[[Item], Value], item: Item, retries: int
    ) -> Future[Ok[Item, Value] | Err[Item]]:
        if self._pool is None:
            self._pool = self._started()
        try:
            return self._pool.submit(attempt, fn, item, retries)
        except BrokenProcessPool:  # a worker died between two tasks
            self.close()
            return self._submit(fn, item, retries)

    def _started(self) -> ProcessPoolExecutor:
        """A pool; the first one has been seen to do something."""
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise SystemExit  # a worker that imports the script: its starter says what is wrong
        pool = ProcessPoolExecutor(self._workers, mp_context=self._context)
        try:
            if not self._has_started:
                pool.submit(_answer).result()
        except BrokenProcessPool as error:
            pool.shutdown()
            raise UsageError(
                "a worker died before it did anything: workers import the script that starts them, "
                "and a script that does its work on import starts itself again there",
                code="no_main_guard",
                next_step='put what the script does into a function, and call it below the line '
                'if __name__ == "__main__":',
            ) from error  # fmt: skip
        self._has_started = True
        return pool

    def _sort_out(
        self,
        flight: dict[Future[Ok[Item, Value] | Err[Item]], Item],
        suspects: deque[Item],
        kills: dict[Item, int],
    ) -> Iterator[Ok[Item, Value] | Err[Item]]:
        """The pool is broken: results that came through, and who is to run again."""
        self.close()
        is_alone = len(flight) == 1  # of several nobody knows which it was
        for future, item in flight.items():
            if future.exception() is None:
                yield future.result()
                continue
            kills[item] = kills.get(item, 0) + is_alone
            if kills[item] >= MAX_KILLS:
                yield Err(item, f"killed its worker {kills[item]} times")
            else:
                suspects.append(item)
        flight.clear()


def _answer() -> None:
    """A worker that runs this has started."""


class _End:
    """After the last item."""


_END = _End()
