"""An op from its begin to its end, whatever door saw it begin.

The end of an op is taken, in this order: from the future of its Work (the backend's worker calls
back before ``wait()`` returns), from the return of ``Work.wait()`` or of the wait for the result
where there is no future (gloo's send, recv and reduce_scatter), and else it is stated as
unobservable: a Work that Python no longer holds cannot be waited for where we can see it.

Sizes follow nccl-tests, so that all ranks agree on the size of an instance: all_gather = total
output, reduce_scatter = total input, gather and scatter = the root's whole buffer, others = the
buffer; ``count`` is in elements of the same buffer.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional, Sequence, Set

from comminsight_inject import codes
from comminsight_inject.batch import CURRENT
from comminsight_inject.callbacks import Callbacks
from comminsight_inject.functional_wait import FunctionalWait
from comminsight_inject.recorder import CiOp, Recorder
from comminsight_inject.waits import Waits


class Group(NamedTuple):
    """A process group as the recorder knows it. ``comm_index`` 0: its ops are not recorded."""

    comm_index: int
    comm_rank: int
    comm_size: int
    is_gloo: bool = True


class Form(NamedTuple):
    """What an op is, as far as its record says.

    ``is_per_rank``: ``tensors`` are one rank's share of the buffer whose size is recorded.
    ``result``: the tensor for which torch itself may wait instead of handing out the Work.
    """

    op: int
    tensors: Sequence[Any]
    is_per_rank: bool = False
    red_op: int = 0
    peer_or_root: int = -1
    flags: int = 0
    n_folded: int = 0
    result: Any = None


class Watch:
    """Begins and ends the records of one process."""

    def __init__(self, recorder: Recorder, torch: Any, c10d: Any) -> None:
        self._recorder = recorder
        self._torch = torch
        self._dtypes = {
            getattr(torch, name): code
            for name, code in codes.DTYPES.items()
            if hasattr(torch, name)
        }
        self._without_future: Set[Any] = set()
        self._functional: Optional[FunctionalWait] = None
        self._callbacks = Callbacks(self._end, torch)
        self._waits = Waits(self._end, c10d.Work)
        self.settle = self._waits.settle

    def begin(self, group: Group, form: Form) -> int:
        """The handle of an op that enters the backend now, 0 when it is not tracked."""
        try:
            self._waits.sweep()
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
        self, handle: int, group: Group, work: Any, form_name: str,
        future: Any = None, result: Any = None,
    ) -> None:  # fmt: skip
        """The backend returned ``work`` (None: the op is over): find a way to see its end."""
        if not handle:
            return
        if work is None:
            self._end(handle, codes.STATE_DONE, codes.TIMING_HOST_RETURN)
            return
        try:
            self._recorder.launched(handle)
            if future is None and group.is_gloo and form_name not in self._without_future:
                future = self._future_of(work, form_name)
            if future is not None:
                self._callbacks.attach(handle, future)
            else:
                self._waits.add(handle, group.comm_index, work, self._reference(result))
        except Exception:  # no way was found: an op without an end would seem to hang
            self._end(handle, codes.STATE_UNOBSERVABLE, codes.TIMING_UNKNOWN)

    def _future_of(self, work: Any, form_name: str) -> Any:
        try:
            return work.get_future()
        except RuntimeError:  # "not implemented": so it is for this form from now on
            self._without_future.add(form_name)
            return None

    def _reference(self, result: Any) -> Any:
        """Weak reference of the result's storage; None where a wait for it cannot be seen."""
        if result is None:
            return None
        try:
            if self._functional is None:
                self._functional = FunctionalWait(self._torch, self._waits, self._end)
            return self._functional.reference(result.untyped_storage())
        except Exception:
            return None

    def failed(self, handle: int) -> None:
        """The backend call itself raised."""
        if handle:
            self._end(handle, codes.STATE_FAILED, codes.TIMING_HOST_RETURN)

    def _end(self, handle: int, state: int, timing_source: int) -> None:
        try:
            self._recorder.end(handle, state, timing_source)
        except Exception:
            pass

    def forget(self) -> None:
        """In a forked child: nothing that is in flight is this process's."""
        self._callbacks.forget()
        self._waits.forget()

    def close(self) -> None:
        """At exit, before the interpreter goes: no callback may come later; bounded."""
        self._callbacks.close()
        self._waits.close()
