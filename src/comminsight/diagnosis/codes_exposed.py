"""Message codes of ``comminsight exposed``; see codes.py."""

from __future__ import annotations

NO_COMMUNICATION_NAMED = "evidence.no_communication_named"
NO_COMMUNICATION_SEEN = "evidence.no_communication_seen"
NO_COMMUNICATION_RANKS = "evidence.no_communication_ranks"
MISSING_COMPUTE = "missing.compute"
MISSING_SIZES = "missing.op_sizes"
MISSING_BETWEEN = "missing.ops_between_steps"
MISSING_UNTIMED = "missing.ops_untimed"
MISSING_ENDS = "missing.ops_late_seen"
MISSING_OWNER_ABSENT = "missing.exposed_owner_absent"
MISSING_OWNER_UNMATCHED = "missing.exposed_owner_unmatched"
MISSING_OWNER_CLOCKS = "missing.exposed_owner_clocks"
MISSING_OWNER_DEPENDS = "missing.exposed_owner_depends"
MISSING_OWNER_UNTIMED = "missing.exposed_owner_untimed"
ADVICE_ALL_REDUCE = "action.exposed_all_reduce"
ADVICE_ALL_GATHER = "action.exposed_all_gather"
ADVICE_REDUCE_SCATTER = "action.exposed_reduce_scatter"
ADVICE_ALL_TO_ALL = "action.exposed_all_to_all"
ADVICE_OTHER = "action.exposed_other"
ADVICE_LATE = "action.exposed_late"
ADVICE_STARTUP = "action.exposed_startup"
ADVICE_FREQUENCY = "action.exposed_frequency"
ADVICE_BANDWIDTH = "action.exposed_bandwidth"

CODES: dict[str, tuple[str, ...]] = {
    # several ranks, no communication in their traces, and nothing else of an unknown kind
    NO_COMMUNICATION_SEEN: ("n_ranks", "n_kernels"),
    # the same with kernels of unknown names
    NO_COMMUNICATION_NAMED: ("n_ranks", "n_kernels", "names"),
    # ranks without any communication beside others that have some
    NO_COMMUNICATION_RANKS: ("ranks",),
    # nothing computes in what was given
    MISSING_COMPUTE: (),
    # ops of fewer than three sizes, or of unknown ones: startup and transfer are not told apart
    MISSING_SIZES: ("ops",),
    # recorded ops that lie between two steps, and are in none of the numbers
    MISSING_BETWEEN: ("n",),
    # recorded ops whose times are not known
    MISSING_UNTIMED: ("n",),
    # recorded ops whose end was seen only when somebody waited for them
    MISSING_ENDS: ("n",),
    # whose lateness made calls wait: why that is not known
    MISSING_OWNER_ABSENT: ("ratio", "n_calls"),
    MISSING_OWNER_UNMATCHED: ("ratio", "n_calls"),
    MISSING_OWNER_CLOCKS: ("ratio", "n_calls"),
    MISSING_OWNER_DEPENDS: ("ratio", "n_calls"),
    MISSING_OWNER_UNTIMED: ("ratio", "n_calls"),
    # what to look at first for a collective
    ADVICE_ALL_REDUCE: (), ADVICE_ALL_GATHER: (), ADVICE_REDUCE_SCATTER: (),
    ADVICE_ALL_TO_ALL: (), ADVICE_OTHER: (),
    # much of its exposed time is waiting for members that enter later, most for one rank
    ADVICE_LATE: ("ratio", "rank"),
    # what its time goes into
    ADVICE_STARTUP: ("ratio",),
    ADVICE_FREQUENCY: ("n_calls", "ratio"),
    ADVICE_BANDWIDTH: ("ratio",),
}  # fmt: skip
