"""Message codes of the rules on logs: ends of ranks, init, limits, versions; see codes.py."""

from __future__ import annotations

FIRST_ERROR = "evidence.first_error"
LOG_ECHOES = "evidence.log_echoes"
NAMELESS_FAULT = "evidence.nameless_fault"
FAULT_SURVIVED = "evidence.fault_survived"
NOT_ENDED = "evidence.not_ended"
BARRIER_MISSED = "evidence.barrier_missed"
SILENT_RANKS = "evidence.silent_ranks"
LOG_COUNTERS = "evidence.log_counters"
WATCHER_STOOD = "evidence.watcher_stood"
HOST_SLEPT = "evidence.host_slept"
HEARTBEAT_LATER = "evidence.heartbeat_later"
HEARTBEAT_ALONE = "evidence.heartbeat_alone"
GIL_HELD = "evidence.gil_held"
LIMIT_SEEN = "evidence.limit_seen"
WORK_SEEN = "evidence.work_seen"
FLAG_OP = "evidence.flag_op"
INTERFACE_GIVEN = "evidence.interface_given"
INTERFACE_USUAL = "evidence.interface_usual"
FILTER_MATCHED_NONE = "evidence.filter_matched_none"
ADDRESS_REFUSED = "evidence.address_refused"
STORE_UNREACHED = "evidence.store_unreached"
STORE_LISTENS = "evidence.store_listens"
INIT_PHASE = "evidence.init_phase"
LOCAL_PARITY = "evidence.local_parity"
ID_AWAITED = "evidence.id_awaited"
TWO_WORLDS = "evidence.two_worlds"
SAME_GPU = "evidence.same_gpu"
SHM_SEGMENT = "evidence.shm_segment"
SHM_CAPACITY = "evidence.shm_capacity"
BUS_ERRORS = "evidence.bus_errors"
CALL_FAILED = "evidence.call_failed"
LIMIT_VALUE = "evidence.limit_value"
SOCKETS_NEEDED = "evidence.sockets_needed"
MANY_COMMS = "evidence.many_comms"
UNUSED_GROUPS = "evidence.unused_groups"
PLUGIN_REJECTED = "evidence.plugin_rejected"
NETWORK_USED = "evidence.network_used"
NCCL_VERSION = "evidence.nccl_version"
ENV_VERSION = "evidence.env_version"
KNOWN_FAULT = "evidence.known_fault"
RUN_RATES = "evidence.run_rates"
MISSING_FAULT_ORDER = "missing.fault_order"
MISSING_KERNEL_LOG = "missing.kernel_log"
MISSING_LOGS_OF = "missing.logs_of"
MISSING_FIRST_SILENT = "missing.first_silent"
MISSING_PROCESS_RANK = "missing.process_rank"
EARLIER_LIFE = "missing.earlier_life"
EVENTS_BEYOND = "missing.events_beyond"
MISSING_COUNTERS = "missing.counters"
MISSING_WORLD = "missing.world"
MISSING_RESOURCE_LIMIT = "missing.resource_limit"
MISSING_LISTENER = "missing.listener"
END_HARD = "action.end_hard"
COMPARE_BATCHES = "action.compare_batches"
GATHER_STACKS = "action.gather_stacks"
LOOK_FOR_SUSPEND = "action.look_for_suspend"
RAISE_LIMIT = "action.raise_limit"
SET_INTERFACE = "action.set_interface"
PLAIN_FILTER = "action.plain_filter"
CHECK_STORE = "action.check_store"
OPEN_PORTS = "action.open_ports"
CHECK_RAILS = "action.check_rails"
BIND_GPUS = "action.bind_gpus"
ONE_RENDEZVOUS = "action.one_rendezvous"
GROW_SHM = "action.grow_shm"
CHECK_SHM = "action.check_shm"
RAISE_MEMLOCK = "action.raise_memlock"
RAISE_DESCRIPTORS = "action.raise_descriptors"
FEWER_CONNECTIONS = "action.fewer_connections"
DROP_GROUPS = "action.drop_groups"
MATCH_PLUGIN = "action.match_plugin"
ONE_VERSION = "action.one_version"
UPGRADE_NCCL = "action.upgrade_nccl"
TRY_VERSION = "action.try_version"

CODES: dict[str, tuple[str, ...]] = {
    FIRST_ERROR: ("rank", "fault", "source", "line"),
    LOG_ECHOES: ("ranks", "n_lines"),
    NAMELESS_FAULT: ("fault", "source", "line", "host", "pid"),
    FAULT_SURVIVED: ("rank", "fault", "source", "line"),
    NOT_ENDED: ("ranks", "source", "line"),
    BARRIER_MISSED: ("ranks", "limit_ns"),
    SILENT_RANKS: ("ranks",),
    LOG_COUNTERS: ("ranks", "comm", "enqueued", "completed"),
    WATCHER_STOOD: ("ranks", "ran_ns", "limit_ns"),
    HOST_SLEPT: ("host", "source", "line"),
    HEARTBEAT_LATER: ("ranks",),
    HEARTBEAT_ALONE: ("ranks", "stuck_ns"),
    GIL_HELD: ("ranks",),
    LIMIT_SEEN: ("limit", "limit_ns", "ranks"),
    WORK_SEEN: ("rank", "work", "took_ns", "source", "line"),
    FLAG_OP: ("op", "n_elements"),
    INTERFACE_GIVEN: ("ranks", "interface", "address"),
    INTERFACE_USUAL: ("ranks", "interface"),
    FILTER_MATCHED_NONE: ("value", "interfaces"),
    ADDRESS_REFUSED: ("ranks", "peer", "error"),
    STORE_UNREACHED: ("ranks", "address", "port"),
    STORE_LISTENS: ("address", "port"),
    INIT_PHASE: ("ranks", "phase"),
    LOCAL_PARITY: ("local_ranks", "step"),
    ID_AWAITED: ("ranks", "owner", "key"),
    TWO_WORLDS: ("rank", "hosts", "n_ranks"),
    SAME_GPU: ("ranks", "bus_id", "host"),
    SHM_SEGMENT: ("ranks", "size_bytes", "n_segments"),
    SHM_CAPACITY: ("capacity_bytes", "needed_bytes"),
    BUS_ERRORS: ("ranks", "host"),
    CALL_FAILED: ("ranks", "call", "error"),
    LIMIT_VALUE: ("limit", "value", "source"),
    SOCKETS_NEEDED: ("n_ranks", "n_per_peer", "needed"),
    MANY_COMMS: ("rank", "n_comms", "needed_bytes"),
    UNUSED_GROUPS: ("rank", "names"),
    PLUGIN_REJECTED: ("ranks", "library", "version"),
    NETWORK_USED: ("ranks", "network"),
    NCCL_VERSION: ("ranks", "version"),
    ENV_VERSION: ("value", "version"),
    KNOWN_FAULT: ("version", "fixed_in", "fault"),
    RUN_RATES: ("before", "after", "before_version", "after_version"),
    MISSING_FAULT_ORDER: ("ranks",),
    MISSING_KERNEL_LOG: ("hosts",),
    MISSING_LOGS_OF: ("ranks",),
    MISSING_FIRST_SILENT: (),
    MISSING_PROCESS_RANK: ("pid", "host"),
    EARLIER_LIFE: ("n_lines",),
    EVENTS_BEYOND: ("n_lines",),
    MISSING_COUNTERS: (),
    MISSING_WORLD: (),
    MISSING_RESOURCE_LIMIT: ("limit",),
    MISSING_LISTENER: ("address",),
    END_HARD: ("ranks",),
    COMPARE_BATCHES: ("ranks",),
    GATHER_STACKS: (),
    LOOK_FOR_SUSPEND: (),
    RAISE_LIMIT: ("limit", "needed_ns"),
    SET_INTERFACE: ("interface",),
    PLAIN_FILTER: ("value",),
    CHECK_STORE: ("address", "port"),
    OPEN_PORTS: ("peer",),
    CHECK_RAILS: ("ranks",),
    BIND_GPUS: ("ranks",),
    ONE_RENDEZVOUS: ("hosts",),
    GROW_SHM: ("needed_bytes",),
    CHECK_SHM: (),
    RAISE_MEMLOCK: (),
    RAISE_DESCRIPTORS: (),
    FEWER_CONNECTIONS: (),
    DROP_GROUPS: ("ranks",),
    MATCH_PLUGIN: ("library",),
    ONE_VERSION: (),
    UPGRADE_NCCL: ("fixed_in",),
    TRY_VERSION: ("version",),
}
