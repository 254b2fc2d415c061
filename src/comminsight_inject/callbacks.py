"""Ends of ops from the futures of their Works, without a callback that outlives the interpreter.

A backend's worker that calls into Python while the interpreter goes aborts the process. So our
callback hangs on a future of our own that the backend's future completes from C++: at exit we can
complete ours first, and the worker then finds nothing left to call.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, Dict, Tuple

from comminsight_inject import codes

CLOSE_WAIT_S = 5.0  # for ops in flight at exit; bare torch waits for them too, but elsewhere
_LAST_WAIT_S = 0.5  # for workers that were about to call back when the rest was cut off
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05

End = Callable[[int, int, int], None]  # handle, OpState, TimingSource; never raises
_Pending = Dict[int, Tuple[Any, Any]]  # handle -> (the backend's future, ours)


class _Callback:
    """Its lifetime says how long the backend may still call: the entry goes when it is freed."""

    __slots__ = ("_callbacks", "_future", "_handle", "_pending")

    def __init__(self, callbacks: Callbacks, handle: int, future: Any, pending: _Pending) -> None:
        self._callbacks = callbacks
        self._handle = handle
        self._future = future
        self._pending = pending

    def __call__(self, _ours: Any) -> None:
        callbacks, handle, future = self._callbacks, self._handle, self._future
        del self, _ours  # the traceback of an error may keep this frame
        if not callbacks.is_closed:
            callbacks.end(handle, _state(future), codes.TIMING_HOST_FUTURE)

    def __del__(self) -> None:
        self._pending.pop(self._handle, None)


def _state(future: Any) -> int:
    try:
        future.value()
    except BaseException:  # the op's error belongs to whoever waits for it
        return codes.STATE_FAILED
    return codes.STATE_DONE


class Callbacks:
    """The ops of one process that end by a callback."""

    def __init__(self, end: End, torch: Any) -> None:
        self.end = end
        self._collect_all = torch._C._collect_all
        self._pending: _Pending = {}
        self.is_closed = False

    def attach(self, handle: int, future: Any) -> None:
        """End ``handle`` when ``future`` is done. Raises what torch raises, keeping nothing."""
        ours = self._collect_all([future])
        pending = self._pending
        callback = _Callback(self, handle, future, pending)
        pending[handle] = future, ours
        ours.add_done_callback(callback)

    def forget(self) -> None:
        """In a forked child: the parent's workers do not exist here."""
        self._pending = {}

    def close(self) -> None:
        """Afterwards no worker calls into Python for us; takes a bounded time."""
        self._await_callbacks(CLOSE_WAIT_S)
        self.is_closed = True
        for handle, (future, ours) in list(self._pending.items()):
            if not future.done():  # else its worker is on its way to us already
                self._cut_off(handle, ours)
        self._await_callbacks(_LAST_WAIT_S)

    def _cut_off(self, handle: int, ours: Any) -> None:
        # Never freed: the last owner would be a worker, and our value needs the interpreter.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(ours))
        try:
            ours.set_result(None)
        except RuntimeError:  # the worker was quicker
            return
        self.end(handle, codes.STATE_ABORTED, codes.TIMING_UNKNOWN)

    def _await_callbacks(self, limit_s: float) -> None:
        pause_s, deadline = _FIRST_PAUSE_S, time.monotonic() + limit_s
        while self._pending and time.monotonic() < deadline:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
