"""Every message code a verdict may carry, with the names of its parameters.

``evidence.*`` stand in ``Verdict.evidence``, ``missing.*`` in ``missing``, ``action.*`` in
``next_actions``. The catalogue of ``report`` has one sentence per code in each language, with
exactly these parameters; ``MEASURES`` are the keys of ``Verdict.measures`` (labels ``field.*``).
"""

from __future__ import annotations

from comminsight.diagnosis import (
    codes_calls,
    codes_data,
    codes_ends,
    codes_exposed,
    codes_groups,
    codes_host,
    codes_link,
    codes_logs,
    codes_records,
    codes_speed,
    codes_trace,
)
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
AT_CUT = "evidence.at_cut"
NOT_YET = "evidence.not_yet"
IN_FLIGHT_SINCE = "evidence.in_flight_since"
LAGGING = "evidence.lagging"
SKIPPED = "evidence.skipped"
STAGE = "evidence.stage"
CHANNELS = "evidence.channels"
PENDING = "evidence.pending"
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
# by NCCL's RAS, each beside what the run's own records say
RAS_ASKED = "evidence.ras_asked"
RAS_GIVEN = "evidence.ras_given"
RAS_AHEAD = "evidence.ras_ahead"
RAS_EQUAL = "evidence.ras_equal"
RAS_LAUNCHED = "evidence.ras_launched"
RAS_DEAD_TOO = "evidence.ras_dead_too"
RAS_DEAD_LEAD = "evidence.ras_dead_lead"
RAS_DEAD_BUT_ALIVE = "evidence.ras_dead_but_alive"
RAS_SILENT = "evidence.ras_silent"
RAS_GONE_UNNAMED = "evidence.ras_gone_unnamed"
RAS_LEFT = "evidence.ras_left"
RAS_STATUS = "evidence.ras_status"
RAS_INIT_ERROR = "evidence.ras_init_error"
RAS_ASYNC_ERROR = "evidence.ras_async_error"
RAS_UNRECORDED = "evidence.ras_unrecorded"
RAS_OTHER_PROCESS = "evidence.ras_other_process"
RAS_MORE = "evidence.ras_more"
EXPLAINS = "evidence.explains"
EXPLAINS_CAUSE = "evidence.explains_cause"

MISSING_RANKS = "missing.ranks"
MISSING_KERNEL_EVENTS = "missing.kernel_events"
MISSING_NETWORK_EVENTS = "missing.network_events"
MISSING_PEERS = "missing.peers"
MISSING_RUNS = "missing.runs"
MISSING_WAITED_FOR = "missing.waited_for"
MISSING_RECORDS = "missing.records"
MISSING_BOX = "missing.box"
MISSING_COUNTS = "missing.counts"
MISSING_STACK = "missing.stack"
MISSING_PROGRESS = "missing.progress"
MISSING_LIVENESS = "missing.liveness"
MISSING_END_TIME = "missing.end_time"
MISSING_DUMP_TIME = "missing.dump_time"
MISSING_UNSEEN_CALL = "missing.unseen_call"
MISSING_NUMBERS = "missing.numbers"
MISSING_LATER_DUMPS = "missing.later_dumps"
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
MISSING_RAS_OURS = "missing.ras_ours"
MISSING_RAS_END = "missing.ras_end"
MISSING_RAS_UNREAD = "missing.ras_unread"
MISSING_RAS_AGREEMENT = "missing.ras_agreement"
MISSING_SIGNS = "missing.signs"
MISSING_FILE = "missing.file"

READ_STACK = "action.read_stack"
CHECK_STREAM = "action.check_stream"
CHECK_HOST = "action.check_host"
END_GROUP = "action.end_group"
CHECK_LINK = "action.check_link"
TAKE_STACK = "action.take_stack"
READ_LOG = "action.read_log"
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
CHECK_PROCESS = "action.check_process"
COLLECT_EVIDENCE = "action.collect_evidence"

CODES: dict[str, tuple[str, ...]] = {
    # ranks that never entered an op, and the last one of its kind that they did enter
    ABSENT: ("ranks", "op", "comm", "match_seq", "last_entered"),
    # ranks that entered an op and wait in it, the oldest for age_ns
    IN_FLIGHT: ("ranks", "op", "comm", "match_seq", "age_ns"),
    # the same where it is not known how long they went on to wait
    IN_FLIGHT_SINCE: ("ranks", "op", "comm", "match_seq", "age_ns"),
    # ranks that wait for ranks that wait
    WAITS_TRANSITIVELY: ("ranks", "culprits"),
    ALL_PRESENT: ("ranks", "op", "comm", "match_seq", "age_ns"),
    # exit_status is "" when nobody saw it
    DIED: ("rank", "exit_status"),
    # the process ended in order while others still wanted it
    LEFT: ("rank",),
    # began another op later_ns after its peers began to wait
    WENT_ON: ("rank", "later_ns"),
    CYCLE_EDGE: ("waiter", "waited_for", "op", "comm", "match_seq"),
    # what these ranks passed to the op that the members disagree on; root -1: none
    SIGNATURE: ("ranks", "op", "size_bytes", "dtype", "root"),
    # a second origin that fewer ranks wait for
    OTHER_ORIGIN: ("ranks", "n_waiting"),
    # ranks in an op for age_ns that others have not entered; a hang is judged at limit_ns
    NOT_YET: ("ranks", "absent", "op", "comm", "match_seq", "age_ns", "limit_ns"),
    # where the known records of a dead rank end
    AT_CUT: ("rank", "op", "comm", "match_seq"),
    AT_DEATH: ("rank", "op", "comm", "match_seq", "age_ns"),
    # ranks in which an op does not end that has ended for ``done``
    LAGGING: ("ranks", "done", "op", "comm", "match_seq"),
    # the rank went on to a later op; n_others ranks had done theirs of this kind before it
    SKIPPED: ("rank", "n_others"),
    # how far the op of these ranks came; stage is a code of its own
    STAGE: ("ranks", "op", "comm", "match_seq", "stage"),
    # channels of one rank that have not stopped, of n_channels
    CHANNELS: ("rank", "channels", "n_channels"),
    # ranks inside many P2P calls made at once, and the ranks with whom theirs have not finished
    PENDING: ("ranks", "comm", "peers", "age_ns"),
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
    # source is the name of a file; members are comm_ranks, ranks those that are known globally
    RAS_ASKED: ("source",),
    RAS_GIVEN: ("source", "timestamp"),
    # launches of an op by ranks that never entered it by the records: more than, or as many as
    # the others that those who wait in it launched
    RAS_AHEAD: ("ranks", "op", "comm", "others"),
    RAS_EQUAL: ("ranks", "op", "comm", "others"),
    RAS_LAUNCHED: (
        "ranks",
        "members",
        "n_members",
        "comm",
        "op",
        "launched",
        "n_others",
        "others",
    ),
    RAS_DEAD_TOO: ("ranks", "pid", "host"),
    # only RAS tells that it is dead
    RAS_DEAD_LEAD: ("ranks", "pid", "host"),
    RAS_DEAD_BUT_ALIVE: ("ranks", "pid", "host"),
    RAS_SILENT: ("ranks", "pid", "host"),
    RAS_GONE_UNNAMED: ("n_processes",),
    RAS_LEFT: ("ranks", "members", "comm"),
    RAS_STATUS: ("ranks", "members", "comm", "status"),
    RAS_INIT_ERROR: ("ranks", "members", "comm", "error"),
    RAS_ASYNC_ERROR: ("ranks", "members", "comm", "error"),
    # a member that left no record here
    RAS_UNRECORDED: ("ranks", "members", "comm", "pid", "host", "device"),
    RAS_OTHER_PROCESS: ("rank", "pid", "ras_pid", "host", "comm"),
    RAS_MORE: ("n",),
    # a statement of another rule that follows from this verdict
    EXPLAINS: ("cause", "ranks"),
    EXPLAINS_CAUSE: ("cause",),
    MISSING_RANKS: ("ranks",),
    MISSING_RECORDS: ("ranks", "lost"),
    # what these ranks recorded last: their process did not close its records, and has no box here
    MISSING_BOX: ("ranks",),
    # NCCL counted calls of these ranks that no recorder saw, not as many on each: numbers differ
    MISSING_COUNTS: ("ranks", "comms", "n_calls"),
    # ops of these ranks were recorded without the events that tell their end
    MISSING_KERNEL_EVENTS: ("ranks",),
    # what the network side of these ranks waits for was not recorded
    MISSING_NETWORK_EVENTS: ("ranks",),
    # with whom the P2P calls of these ranks are
    MISSING_PEERS: ("ranks",),
    # when ops ran of which only the calls were seen, as a share of all ops
    MISSING_RUNS: ("ratio",),
    # for whom ranks waited in many P2P calls made at once, as a share of their time
    MISSING_WAITED_FOR: ("ratio",),
    # reason is a code of the stack ladder, "" when no stack was asked for
    MISSING_STACK: ("rank", "reason"),
    # ranks of which nothing recorded tells how far they came
    MISSING_PROGRESS: ("ranks", "comm"),
    MISSING_LIVENESS: ("ranks",),
    # whether these ranks were gone before the others
    MISSING_END_TIME: ("ranks",),
    # dumps do not say when they were written
    MISSING_DUMP_TIME: (),
    # ranks that may be in a call of which their dump has no entry
    MISSING_UNSEEN_CALL: ("ranks",),
    # ranks whose dumps are older than what is over on others
    MISSING_LATER_DUMPS: ("ranks",),
    # communicators with sends and receives, in dumps of early versions
    MISSING_NUMBERS: ("comms",),
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
    # an answer of RAS that names a communicator of this run
    MISSING_RAS_OURS: ("source",),
    MISSING_RAS_END: ("source",),
    MISSING_RAS_UNREAD: ("source", "n"),
    # RAS contradicts the records: the evidence says in what
    MISSING_RAS_AGREEMENT: ("source",),
    MISSING_SIGNS: (),
    # reason is a code of its own
    MISSING_FILE: ("source", "reason"),
    READ_STACK: ("rank",),
    CHECK_STREAM: ("ranks",),
    CHECK_HOST: ("ranks",),
    END_GROUP: ("ranks", "op", "comm"),
    CHECK_LINK: ("ranks",),
    # the process is gone: its log is what is left
    READ_LOG: ("rank",),
    # pid in the process's own namespace, "PID" where nobody told it
    TAKE_STACK: ("rank", "pid", "host"),
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
    # a process that only RAS tells to be gone or silent
    CHECK_PROCESS: ("pid", "host"),
    COLLECT_EVIDENCE: (),
    **codes_calls.CODES,
    **codes_data.CODES,
    **codes_ends.CODES,
    **codes_groups.CODES,
    **codes_link.CODES,
    **codes_logs.CODES,
    **codes_records.CODES,
    **codes_speed.CODES,
    **codes_trace.CODES,
    **codes_host.CODES,
    **codes_exposed.CODES,
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
    *codes_data.MEASURES,
    *codes_link.MEASURES,
)


def message(code: str, **params: MessageParam) -> Message:
    """A message with exactly the parameters its code declares; anything else is a KeyError."""
    if set(params) != set(CODES[code]):
        raise KeyError(f"{code} takes {CODES[code]}, got {tuple(params)}")
    return Message(code, params)
