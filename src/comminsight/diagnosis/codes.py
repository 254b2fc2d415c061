"""Every message code a verdict may carry, with the names of its parameters.

``evidence.*`` stand in ``Verdict.evidence``, ``missing.*`` in ``missing``, ``action.*`` in
``next_actions``. The catalogue of ``report`` has one sentence per code in each language, with
exactly these parameters; ``MEASURES`` are the keys of ``Verdict.measures`` (labels ``field.*``).
"""

from __future__ import annotations

from comminsight.model.verdict import Message, MessageParam

ABSENT = "evidence.absent"
IN_FLIGHT = "evidence.in_flight"
WAITS_TRANSITIVELY = "evidence.waits_transitively"
ALL_PRESENT = "evidence.all_present"
DIED = "evidence.died"
LEFT = "evidence.left"
WENT_ON = "evidence.went_on"
CYCLE_EDGE = "evidence.cycle_edge"
SIGNATURE = "evidence.signature"
OTHER_ORIGIN = "evidence.other_origin"
AT_DEATH = "evidence.at_death"
STACK = "evidence.stack"
COST = "evidence.cost"
ONSET = "evidence.onset"
RECURS_ALWAYS = "evidence.recurs_always"
RECURS_SINCE = "evidence.recurs_since"
RECURS_INTERMITTENTLY = "evidence.recurs_intermittently"
RECURS_ROTATING = "evidence.recurs_rotating"
INDEX_ELSEWHERE = "evidence.index_elsewhere"
ALIKE = "evidence.alike"
TRANSFER = "evidence.transfer"
NOTHING_PERSISTS = "evidence.nothing_persists"

MISSING_RANKS = "missing.ranks"
MISSING_RECORDS = "missing.records"
MISSING_STACK = "missing.stack"
MISSING_PROGRESS = "missing.progress"
MISSING_LIVENESS = "missing.liveness"
MISSING_COMMUNICATOR = "missing.communicator"
MISSING_MEMBERS = "missing.members"
MISSING_OVERDUE = "missing.overdue"
MISSING_ORIGIN = "missing.origin"
MISSING_SEND_END = "missing.send_end"
MISSING_MAJORITY = "missing.majority"
MISSING_EXIT_STATUS = "missing.exit_status"
MISSING_STEPS = "missing.steps"
MISSING_COMPLETE_STEPS = "missing.complete_steps"
MISSING_CLOCK = "missing.clock"
MISSING_REPLICAS = "missing.replicas"
MISSING_AGREEMENT = "missing.agreement"
MISSING_PORT = "missing.port"
MISSING_COMMON_CAUSE = "missing.common_cause"

READ_STACK = "action.read_stack"
TAKE_STACK = "action.take_stack"
COMPARE_PATHS = "action.compare_paths"
READ_FIRST_ERROR = "action.read_first_error"
READ_KERNEL_LOG = "action.read_kernel_log"
COLLECT_RANKS = "action.collect_ranks"
ORDER_GROUPS = "action.order_groups"
CHECK_TRANSFER = "action.check_transfer"
PROFILE_RANK = "action.profile_rank"
COMPARE_HOST = "action.compare_host"
REBALANCE = "action.rebalance"
RECORD_LONGER = "action.record_longer"

CODES: dict[str, tuple[str, ...]] = {
    # ranks that never entered an op, and the last one of its kind that they did enter
    ABSENT: ("ranks", "op", "comm", "match_seq", "last_entered"),
    # ranks that entered an op and wait in it, the oldest for age_ns
    IN_FLIGHT: ("ranks", "op", "comm", "match_seq", "age_ns"),
    # ranks that wait for ranks that wait
    WAITS_TRANSITIVELY: ("ranks", "culprits"),
    ALL_PRESENT: ("ranks", "op", "comm", "match_seq", "age_ns"),
    # exit_status is "" when nobody saw it
    DIED: ("rank", "exit_status"),
    # the process ended in order while others still wanted it
    LEFT: ("rank",),
    # alive, and finished another op later_ns after its peers began to wait
    WENT_ON: ("rank", "later_ns"),
    CYCLE_EDGE: ("waiter", "waited_for", "op", "comm", "match_seq"),
    # what these ranks passed to the op that the members disagree on; root -1: none
    SIGNATURE: ("ranks", "op", "size_bytes", "dtype", "root"),
    # a second origin that fewer ranks wait for
    OTHER_ORIGIN: ("ranks", "n_waiting"),
    AT_DEATH: ("rank", "op", "comm", "match_seq", "age_ns"),
    # the stack itself is in Evidence.text
    STACK: ("rank", "source"),
    # median cost of this rank over the steps in which it acted, and the median step time
    COST: ("rank", "cost_ns", "n_steps", "step_ns"),
    ONSET: ("step", "before_ns", "after_ns"),
    RECURS_ALWAYS: ("n_hit", "n_steps"),
    RECURS_SINCE: ("step", "n_hit", "n_steps"),
    RECURS_INTERMITTENTLY: ("n_hit", "n_steps"),
    RECURS_ROTATING: ("ranks", "n_hit", "n_steps"),
    # the Straggler Index is highest on another rank, which passes delay on
    INDEX_ELSEWHERE: ("rank", "index_pct", "origin_rank", "origin_index_pct"),
    # all ranks of a place in the layout carry the same delay
    ALIKE: ("place", "ranks", "cost_ns"),
    TRANSFER: ("ranks", "comm", "cost_ns"),
    # the largest cost of any single rank, and the smallest that would be named
    NOTHING_PERSISTS: ("cost_ns", "needed_ns", "n_steps"),
    MISSING_RANKS: ("ranks",),
    MISSING_RECORDS: ("ranks", "lost"),
    # reason is a code of the stack ladder, "" when no stack was asked for
    MISSING_STACK: ("rank", "reason"),
    # ranks of which nothing recorded tells how far they came
    MISSING_PROGRESS: ("ranks", "comm"),
    MISSING_LIVENESS: ("ranks",),
    # ops in flight on communicators that no table names
    MISSING_COMMUNICATOR: ("n_ops",),
    # members of a communicator that no evidence names
    MISSING_MEMBERS: ("comm", "n_members"),
    MISSING_OVERDUE: ("limit_ns",),
    # ops wait, yet nobody whom they wait for could be told
    MISSING_ORIGIN: ("ranks",),
    # sends in flight: buffered, or blocking?
    MISSING_SEND_END: ("ranks",),
    MISSING_MAJORITY: ("ranks",),
    MISSING_EXIT_STATUS: ("ranks",),
    MISSING_STEPS: ("used", "needed"),
    MISSING_COMPLETE_STEPS: ("used", "excluded"),
    MISSING_CLOCK: ("clock_error_ns", "cost_ns"),
    # nobody does the same work as these ranks, so slow and overloaded look alike
    MISSING_REPLICAS: ("ranks",),
    # the evidence points at these ranks in turn, or at work and transfer alike
    MISSING_AGREEMENT: ("ranks",),
    MISSING_PORT: ("comm",),
    # all ranks became slower alike: nobody among them is the origin
    MISSING_COMMON_CAUSE: ("step", "before_ns", "after_ns"),
    READ_STACK: ("rank",),
    TAKE_STACK: ("rank",),
    COMPARE_PATHS: ("ranks", "op", "comm"),
    READ_FIRST_ERROR: ("ranks",),
    READ_KERNEL_LOG: ("hosts",),
    COLLECT_RANKS: ("ranks",),
    ORDER_GROUPS: ("comms",),
    CHECK_TRANSFER: ("comm",),
    PROFILE_RANK: ("rank",),
    COMPARE_HOST: ("host",),
    REBALANCE: ("place",),
    RECORD_LONGER: ("needed",),
}

MEASURES: tuple[str, ...] = (
    "longest_wait_ns",
    "n_waiting",
    "n_waiting_directly",
    "step_cost_ns",
    "step_cost_ratio",
    "step_before_ns",
    "step_after_ns",
    "explained_ratio",
    "n_hit_steps",
    "hit_ratio",
    "straggler_index_pct",
    "largest_index_pct",
    "own_delay_ns",
    "transfer_delay_ns",
    "noise_ns",
    "n_in_flight",
)


def message(code: str, **params: MessageParam) -> Message:
    """A message with exactly the parameters its code declares; anything else is a KeyError."""
    if set(params) != set(CODES[code]):
        raise KeyError(f"{code} takes {CODES[code]}, got {tuple(params)}")
    return Message(code, params)
