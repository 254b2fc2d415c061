"""Message codes of how processes and jobs end, and what to do about each; see codes.py."""

from __future__ import annotations

READ_TRACEBACK = "action.read_traceback"
FREE_MEMORY = "action.free_memory"
FIND_KILLER = "action.find_killer"
READ_KERNEL_OOM = "action.read_kernel_oom"
FIND_SENDER = "action.find_sender"
CHECK_KERNEL_CODE = "action.check_kernel_code"
CHECK_GPU = "action.check_gpu"
READ_KERNEL_XID = "action.read_kernel_xid"
READ_CRASH = "action.read_crash"

CODES: dict[str, tuple[str, ...]] = {
    READ_TRACEBACK: ("rank", "source", "line"),
    FREE_MEMORY: ("ranks",),
    FIND_KILLER: ("ranks",),
    READ_KERNEL_OOM: ("hosts",),
    FIND_SENDER: ("ranks",),
    CHECK_KERNEL_CODE: ("ranks",),
    CHECK_GPU: ("ranks",),
    READ_KERNEL_XID: ("hosts",),
    READ_CRASH: ("ranks",),
}
