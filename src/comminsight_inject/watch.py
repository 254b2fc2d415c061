"""An op from its begin to its end, whatever door saw it begin.

The end of an op is taken, in this order: from the future of its Work (the backend's worker calls
back before ``wait()`` returns), from the return of ``Work.wait()`` where there is no future
(gloo's send, recv and reduce_scatter), and else it is stated as unobservable: a Work that Python
no longer holds cannot be waited for where we can see it.

Sizes follow nccl-tests, so that all ranks agree on the size of an instance: all_gather = total
output, reduce_scatter = total input, gather and scatter = the root's whole buffer, others = the
buffer; ``count`` is in elements of the same buffer.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
import threading
import time
from typing import Any, Dict, NamedTuple, Sequence, Set

from comminsight_inject import codes
from comminsight_inject.batch import CURRENT
from comminsight_inject.recorder import CiOp, Recorder

MAX_WAITING = 1024
_SWEEP = 8  # waiting ops looked at per begin
_OUR_REFERENCES = 3  # the table's key, the loop variable, the argument of getrefcount
_FOREIGN_THREAD_GRACE_NS = 1_000_000_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05


class Group(NamedTuple):
    """A process group as the recorder knows it. ``comm_index`` 0: its ops are not recorded."""

    comm_index: int
    comm_rank: int
    comm_size: int
    is_gloo: bool = True


class Form(NamedTuple):
    """What an op is, as far as its record says.

    ``is_per_rank``: ``tensors`` are one rank's share of the buffer whose size is recorded.
    """

    op: int
    tensors: Sequence[Any]
    is_per_rank: bool = False
    red_op: int = 0
    peer_or_root: int = -1
    flags: int = 0
    n_folded: int = 0


class _Waiting(NamedTuple):
    handle: int
    comm_index: int
    thread: int
    since_ns: int


class Watch:
    """Begins and ends the records of one process."""

    def __init__(self, recorder: Recorder, torch: Any, c10d: Any) -> None:
        self._recorder = recorder
        self._dtypes = {
            getattr(torch, name): code
            for name, code in codes.DTYPES.items()
            if hasattr(torch, name)
        }
        self._waiting: Dict[Any, _Waiting] = {}
        self._called_back: Set[int] = set()  # handles whose future has yet to call
        self._without_future: Set[Any] = set()
        self._left_behind: Any = None
        self._is_closed = False
        self._hook_wait(c10d.Work)

    def begin(self, group: Group, form: Form) -> int:
        """The handle of an op that enters the backend now, 0 when it is not tracked."""
        try:
            if self._waiting:
                self._sweep()
            return self._begin(group, form)
        except Exception:
            return 0

    def _begin(self, group: Group, form: Form) -> int:
        count = size_bytes = dtype = 0
        tensors = form.tensors
        if tensors:
            dtype = self._dtypes.get(tensors[0].dtype, 0)
            for tensor in tensors:
                count += tensor.numel()
                size_bytes += tensor.nbytes
        is_p2p = form.op >= codes.OP_SEND
        kind = codes.KIND_P2P if is_p2p else codes.KIND_COLLECTIVE
        if form.is_per_rank:
            count, size_bytes = count * group.comm_size, size_bytes * group.comm_size
        if form.n_folded:
            op = CiOp(
                count, size_bytes, 0, form.peer_or_root, CURRENT.group_id, form.flags,
                kind, form.op, dtype, form.red_op, form.n_folded,
            )  # fmt: skip
            return int(self._recorder.begin_op(group.comm_index, ctypes.byref(op)))
        return int(
            self._recorder.begin(
                group.comm_index, kind, form.op, dtype, form.red_op, count, size_bytes,
                form.peer_or_root, form.flags, CURRENT.group_id,
            )
        )  # fmt: skip

    def follow(
        self, handle: int, group: Group, work: Any, form_name: str, future: Any = None
    ) -> None:
        """The backend returned ``work`` (None: the op is over): find a way to see its end."""
        if not handle:
            return
        try:
            if work is None:
                self._recorder.end(handle, codes.STATE_DONE, codes.TIMING_HOST_RETURN)
                return
            self._recorder.launched(handle)
            if future is None and group.is_gloo and form_name not in self._without_future:
                future = self._future_of(work, form_name)
            if future is None:
                self._wait_for(handle, group.comm_index, work)
            else:
                self._called_back.add(handle)
                future.add_done_callback(functools.partial(self._future_done, handle))
        except Exception:
            pass

    def _future_of(self, work: Any, form_name: str) -> Any:
        try:
            return work.get_future()
        except RuntimeError:  # "not implemented": so it is for this form from now on
            self._without_future.add(form_name)
            return None

    def _future_done(self, handle: int, future: Any) -> None:
        if self._is_closed:  # the interpreter may be half gone
            return
        try:
            future.value()
            state = codes.STATE_DONE
        except BaseException:  # the op's error belongs to whoever waits for it
            state = codes.STATE_FAILED
        self._recorder.end(handle, state, codes.TIMING_HOST_FUTURE)
        self._called_back.discard(handle)

    def _wait_for(self, handle: int, comm_index: int, work: Any) -> None:
        # A strong reference: the caller must receive this very Python object to wait on.
        entry = _Waiting(handle, comm_index, threading.get_ident(), time.monotonic_ns())
        self._waiting[work] = entry
        if len(self._waiting) > MAX_WAITING:
            self._give_up(next(iter(self._waiting)))

    def failed(self, handle: int) -> None:
        """The backend call itself raised."""
        if handle:
            self._recorder.end(handle, codes.STATE_FAILED, codes.TIMING_HOST_RETURN)

    def _hook_wait(self, work_type: Any) -> None:
        wait_unseen = work_type.wait
        if hasattr(wait_unseen, "_comminsight_original"):
            return
        waiting, end = self._take, self._recorder.end

        @functools.wraps(wait_unseen)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            handle = waiting(work)
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

    def _take(self, work: Any) -> int:
        entry = self._waiting.pop(work, None)
        return 0 if entry is None else entry.handle

    def _sweep(self) -> None:
        """Give up ops whose Work is held by no one but this table.

        Another thread's Work may be on its way from the kernel to its caller: it is given time.
        """
        now_ns, me = time.monotonic_ns(), threading.get_ident()
        for work, entry in list(itertools.islice(self._waiting.items(), _SWEEP)):
            is_young = now_ns - entry.since_ns < _FOREIGN_THREAD_GRACE_NS
            if entry.thread != me and is_young:
                continue
            # One more than ours: the tuple that the list holds.
            if sys.getrefcount(work) <= _OUR_REFERENCES + 1:
                self._give_up(work)

    def _give_up(self, work: Any) -> None:
        handle = self._take(work)
        if handle:
            self._recorder.end(handle, codes.STATE_UNOBSERVABLE, codes.TIMING_UNKNOWN)

    def settle(self, comm_index: int) -> None:
        """The communicator goes: whatever nobody waits for will never be seen to end."""
        for work, entry in list(self._waiting.items()):
            if entry.comm_index == comm_index:
                self._give_up(work)

    def forget(self) -> None:
        """In a forked child: keep the parent's Works alive, untouched; they are not ours."""
        self._left_behind = (self._left_behind, self._waiting)
        self._waiting, self._called_back = {}, set()

    def close(self) -> None:
        """At exit, before the interpreter goes: wait until every future has called back.

        A callback that needs the interpreter while it goes would abort the process. No deadline:
        gloo's destructor waits for the same ops, so that the exit takes as long as without us.
        """
        pause_s = _FIRST_PAUSE_S
        while self._called_back:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        time.sleep(_FIRST_PAUSE_S)  # the worker lets go of the last callback
        for work in list(self._waiting):
            self._give_up(work)
        self._is_closed = True
