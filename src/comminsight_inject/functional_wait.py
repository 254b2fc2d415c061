"""The end of functional reduce-scatters: C++ waits for their Work when their result is waited for.

A kernel for ``wait_tensor`` on CPU that calls the kernel it replaces under a key that has the same
one. Installed at the first op that needs it.
"""

from __future__ import annotations

import warnings
from typing import Any

from comminsight_inject import codes
from comminsight_inject.callbacks import End
from comminsight_inject.waits import Waits


class FunctionalWait:
    """Ends ops of ``waits`` by their results."""

    def __init__(self, torch: Any, waits: Waits, end: End) -> None:
        self.reference = torch.multiprocessing.reductions.StorageWeakRef
        self._waits = waits
        self._end = end
        self._operator = torch.ops._c10d_functional.wait_tensor.default
        # Any key without a kernel of its own; the call gives up the GIL.
        self._elsewhere = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)
        self._library = torch.library.Library("_c10d_functional", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "overriding a previously registered kernel" is meant
            self._library.impl("wait_tensor", self._wait_tensor, "CPU", allow_override=True)

    def _wait_tensor(self, tensor: Any) -> Any:
        handle = self._handle(tensor)
        if not handle:
            return self._operator.redispatch(self._elsewhere, tensor)
        try:
            result = self._operator.redispatch(self._elsewhere, tensor)
        except BaseException:
            self._end(handle, codes.STATE_FAILED, codes.TIMING_HOST_WAIT)
            raise
        self._end(handle, codes.STATE_DONE, codes.TIMING_HOST_WAIT)
        return result

    def _handle(self, tensor: Any) -> int:
        try:
            return self._waits.take_result(tensor.untyped_storage())
        except Exception:
            return 0
