"""Message codes of verdicts on groups, sends and receives, their order, and what NCCL's RAS counts.

They are merged into ``codes.CODES``; the sentences stand in the catalogues of topic ``groups``.
"""

from __future__ import annotations

# what these ranks say of a process group
GROUP_CLAIM = "evidence.group_claim"
# the calls that a rank has open, in its order
CALL_ORDER = "evidence.call_order"
# sizes of the open sends or receives of one pair, in the order of the calls
P2P_SIZES = "evidence.p2p_sizes"
# several open transfers of one pair and size: nothing tells which receive takes which send
AMBIGUOUS = "evidence.ambiguous_match"
# two pairs without a common rank stand still alike
PAIRS_APART = "evidence.pairs_apart"
COMPILER = "evidence.compiler"
OUTSIDE_KERNEL = "evidence.outside_kernel"
BLOCKING_LAUNCH = "evidence.blocking_launch"
FIRST_USE = "evidence.first_use"
LOADER = "evidence.loader"
# ranks that began to make a communicator and did not say that it is complete
INIT_OPEN = "evidence.init_open"
SPLIT_OF = "evidence.split_of"
ROOT_NAMED = "evidence.root_named"
ROOT_OUTSIDE = "evidence.root_outside"
# per group: the last op that all members entered, and who has not come to the next one
GROUP_BEHIND = "evidence.group_behind"
# hosts in the order of how many ranks wait for theirs
HOSTS_BEHIND = "evidence.hosts_behind"
SPINNING = "evidence.spinning"
# the group whose watchdog gave up first is not the one in which waiting begins
PRINTED_FIRST = "evidence.printed_first"
# the two sides of one count of RAS, the one behind first
RAS_BEHIND = "evidence.ras_behind"
RAS_STILL = "evidence.ras_still"

MISSING_SIDE_STATE = "missing.side_state"
MISSING_SECOND_ANSWER = "missing.second_answer"
MISSING_NATIVE_STACK = "missing.native_stack"
MISSING_MATCH = "missing.match"

ONE_GROUP_CALL = "action.one_group_call"
SAME_GROUPS = "action.same_groups"
UNSET_VARIABLE = "action.unset_variable"
LOAD_EAGERLY = "action.load_eagerly"
CHECK_ROOT = "action.check_root"
ASK_RAS_AGAIN = "action.ask_ras_again"
INIT_TOGETHER = "action.init_together"
ORDER_KERNELS = "action.order_kernels"
TAG_MESSAGES = "action.tag_messages"
COMPILE_TOGETHER = "action.compile_together"

CODES: dict[str, tuple[str, ...]] = {
    GROUP_CLAIM: ("ranks", "name", "desc", "members"),
    # calls are words like "send->1": a name of an op and a rank, in no language
    CALL_ORDER: ("rank", "calls"),
    P2P_SIZES: ("rank", "op", "peer", "sizes_bytes"),
    AMBIGUOUS: ("sender", "receiver", "size_bytes", "n"),
    PAIRS_APART: ("pairs",),
    COMPILER: ("rank", "frame"),
    OUTSIDE_KERNEL: ("ranks", "kernel"),
    BLOCKING_LAUNCH: ("variable", "value", "source"),
    FIRST_USE: ("op", "comm"),
    LOADER: ("rank", "frame"),
    INIT_OPEN: ("ranks", "comm", "n_ranks"),
    SPLIT_OF: ("ranks", "waiting", "op", "comm"),
    ROOT_NAMED: ("ranks", "op", "n", "comm", "root"),
    ROOT_OUTSIDE: ("ranks", "root", "n_ranks"),
    GROUP_BEHIND: ("comm", "op", "last", "ranks", "n_waiting"),
    HOSTS_BEHIND: ("hosts", "n_waiting"),
    SPINNING: ("host", "devices", "power_w"),
    PRINTED_FIRST: ("printed", "comm", "timeout_ms"),
    RAS_BEHIND: ("comm", "op", "behind", "n_behind", "launched", "ahead", "n_ahead", "others"),
    RAS_STILL: ("source", "other", "comm"),
    MISSING_SIDE_STATE: ("behind", "ahead"),
    MISSING_SECOND_ANSWER: ("source",),
    MISSING_NATIVE_STACK: ("ranks",),
    MISSING_MATCH: ("ranks",),
    ONE_GROUP_CALL: ("ranks",),
    SAME_GROUPS: ("names",),
    UNSET_VARIABLE: ("variable",),
    LOAD_EAGERLY: (),
    CHECK_ROOT: ("ranks",),
    ASK_RAS_AGAIN: (),
    INIT_TOGETHER: ("ranks",),
    ORDER_KERNELS: ("ranks", "kernel"),
    TAG_MESSAGES: ("ranks",),
    COMPILE_TOGETHER: (),
}
