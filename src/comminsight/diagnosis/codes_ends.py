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
NODE_FAILED = "evidence.node_failed"
SOME_NODE_FAILED = "evidence.some_node_failed"
LAUNCHER_SAW = "evidence.launcher_saw"
SCHEDULER_ENDED = "evidence.scheduler_ended"
MISSING_TASK_IS_RANK = "missing.task_is_rank"
MISSING_WHY_ENDED = "missing.why_ended"
MISSING_RANKS_ON = "missing.ranks_on"
MISSING_LOST_NODE = "missing.lost_node"
MISSING_BEFORE_END = "missing.before_end"
CHECK_NODE = "action.check_node"

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
    NODE_FAILED: ("node", "source", "line"),
    SOME_NODE_FAILED: ("source", "line"),
    LAUNCHER_SAW: ("task", "exit_status", "host", "source", "line"),
    SCHEDULER_ENDED: ("reason", "source", "line"),
    # the ranks that are inferred from numbers of processes
    MISSING_TASK_IS_RANK: ("ranks",),
    MISSING_WHY_ENDED: ("ranks",),
    MISSING_RANKS_ON: ("hosts",),
    MISSING_LOST_NODE: (),
    MISSING_BEFORE_END: (),
    CHECK_NODE: ("hosts",),
}
