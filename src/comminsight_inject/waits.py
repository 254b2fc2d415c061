"""Ends of ops that have no future: the return of ``Work.wait()``, or of the wait for a result.

The table holds its Works: a caller must receive the very Python object under which we know the op.
What nobody else holds any more is given up a few at a time, so that neither Works nor their tensors
pile up.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import Any, Dict, List, NamedTuple

from comminsight_inject import codes
from comminsight_inject.callbacks import End

MAX_WAITING = 256
_SWEEP = 8  # ops looked at per begin
_FOREIGN_THREAD_GRACE_NS = 1_000_000_000
_RESULT_PATIENCE_NS = 30_000_000_000


class _Waiting(NamedTuple):
    handle: int
    comm_index: int
    thread: int
    since_ns: int
    work: Any
    result: Any = None  # weak reference of the storage whose wait ends the op too


def _references(entry: _Waiting) -> int:
    return sys.getrefcount(entry.work)


# What the table itself and the way of counting add, which differs between interpreters.
_OUR_REFERENCES = _references(_Waiting(0, 0, 0, 0, object()))


class Waits:
    """Ops in flight that end when somebody waits for them. Keys are ids: a Work need not hash."""

    def __init__(self, end: End, work_type: Any) -> None:
        self._end = end
        self._waiting: Dict[int, _Waiting] = {}
        self._by_result: Dict[int, int] = {}  # storage -> key of ``_waiting``
        self._unseen: List[int] = []  # keys that the present round of sweeps has not looked at
        self._left_behind: Any = None
        self._hook_wait(work_type)

    def add(self, handle: int, comm_index: int, work: Any, result: Any = None) -> None:
        """``result``: weak storage reference by which C++ may be asked to wait instead."""
        now_ns, key = time.monotonic_ns(), id(work)
        entry = _Waiting(handle, comm_index, threading.get_ident(), now_ns, work, result)
        self._waiting[key] = entry
        if result is not None:
            self._by_result[result.cdata] = key
        if len(self._waiting) > MAX_WAITING:
            self._give_up(next(iter(self._waiting)))

    def _take(self, key: int) -> int:
        """The handle under ``key``, 0 when there is none; the entry is gone afterwards."""
        try:
            entry = self._waiting.pop(key, None)
            if entry is None:
                return 0
            if entry.result is not None and self._by_result.get(entry.result.cdata) == key:
                del self._by_result[entry.result.cdata]
            return entry.handle
        except Exception:
            return 0

    def take_result(self, storage: Any) -> int:
        """Handle of the op whose result lies in ``storage``, 0 when it is none of ours."""
        key = self._by_result.get(storage._cdata)
        return 0 if key is None else self._take(key)

    def _hook_wait(self, work_type: Any) -> None:
        wait_unseen = work_type.wait
        if hasattr(wait_unseen, "_comminsight_original"):
            return
        take, end = self._take, self._end

        @functools.wraps(wait_unseen)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            handle = take(id(work))
            if not handle:
                return wait_unseen(work, *args, **kwargs)
            try:
                result = wait_unseen(work, *args, **kwargs)
            except BaseException:
                end(handle, codes.STATE_FAILED, codes.TIMING_HOST_WAIT)
                raise
            end(handle, codes.STATE_DONE, codes.TIMING_HOST_WAIT)
            return result

        wait._comminsight_original = wait_unseen  # type: ignore[attr-defined]
        work_type.wait = wait

    def sweep(self) -> None:
        """Look at the next few ops, and give up those that nobody can wait for any more."""
        if not self._waiting:
            return
        keys = self._unseen or list(self._waiting)
        self._unseen = keys[_SWEEP:]
        now_ns, me = time.monotonic_ns(), threading.get_ident()
        for key in keys[:_SWEEP]:
            entry = self._waiting.get(key)
            if entry is not None and self._is_abandoned(entry, now_ns - entry.since_ns, me):
                self._give_up(key)

    def _is_abandoned(self, entry: _Waiting, age_ns: int, me: int) -> bool:
        """Held by no one but this table.

        Another thread's Work may be on its way from the kernel to its caller, and a functional
        collective's is held by torch until its result is waited for: both are given time.
        """
        if _references(entry) > _OUR_REFERENCES:
            return False
        if entry.result is not None and not entry.result.expired():
            return age_ns > _RESULT_PATIENCE_NS
        return entry.thread == me or age_ns > _FOREIGN_THREAD_GRACE_NS

    def _give_up(self, key: int) -> None:
        handle = self._take(key)
        if handle:
            self._end(handle, codes.STATE_UNOBSERVABLE, codes.TIMING_UNKNOWN)

    def settle(self, comm_index: int) -> None:
        """The communicator goes: whatever nobody waits for will never be seen to end."""
        for key, entry in list(self._waiting.items()):
            if entry.comm_index == comm_index:
                self._give_up(key)

    def forget(self) -> None:
        """In a forked child: keep the parent's Works alive, untouched; they are not ours."""
        self._left_behind = (self._left_behind, self._waiting)
        self._waiting, self._by_result, self._unseen = {}, {}, []

    def close(self) -> None:
        """At exit: let go of every Work."""
        for key in list(self._waiting):
            self._give_up(key)
