"""Message codes of the rules on links, ports and paths; see codes.py."""

from __future__ import annotations

AT_FIRST_USE = "evidence.at_first_use"
LATE_ERROR = "evidence.late_error"
UNANSWERED = "evidence.unanswered"
GID_LINK_LOCAL = "evidence.gid_link_local"
GID_USED = "evidence.gid_used"
GID_DRIFT = "evidence.gid_drift"
CROSS_RAIL = "evidence.cross_rail"
HOST_EVENT = "evidence.host_event"
PORT_DOWN = "evidence.port_down"
PORT_BACK = "evidence.port_back"
FAILED_AFTER = "evidence.failed_after"
MTU_DIFFERS = "evidence.mtu_differs"
COUNTER_ROSE = "evidence.counter_rose"
COUNTERS_STILL = "evidence.counters_still"
SIZE_DIP = "evidence.size_dip"
NIC_USERS = "evidence.nic_users"
NIC_ALONE = "evidence.nic_alone"
SLOW_GROUPS = "evidence.slow_groups"
CEILING = "evidence.ceiling"
PORT_RATE = "evidence.port_rate"
SLOW_PATH = "evidence.slow_path"
SLOW_PLACE = "evidence.slow_place"
FELL_AT = "evidence.fell_at"
FIT_DRIFTED = "evidence.fit_drifted"
SLOW_CANDIDATES = "evidence.slow_candidates"
ONLY_FROM_HOSTS = "evidence.only_from_hosts"
LATENCY_BOUND = "evidence.latency_bound"
RUN_SLOWER = "evidence.run_slower"
RUN_SPREAD = "evidence.run_spread"
OP_ALONE = "evidence.op_alone"
RUN_SETTING = "evidence.run_setting"
VERSION_DIFFERS = "evidence.version_differs"
GRAPH_DIFFERS = "evidence.graph_differs"
MASK_DIFFERS = "evidence.mask_differs"
MASK_NOT_LOCAL = "evidence.mask_not_local"
REDIRECTS = "evidence.redirects"
P2P_IN_USE = "evidence.p2p_in_use"
PAIRS_FAIL = "evidence.pairs_fail"
PAIRS_WORK = "evidence.pairs_work"
NVLINK_DOWN = "evidence.nvlink_down"
P2P_OFF = "evidence.p2p_off"
NO_SWITCH = "evidence.no_switch"
GDR_OFF = "evidence.gdr_off"
RESULTS_DIFFER = "evidence.results_differ"
ORDER_IN_SWITCH = "evidence.order_in_switch"
ALGO_BY_SIZE = "evidence.algo_by_size"
ALGO_DIFFERS = "evidence.algo_differs"
LAYOUT_DIFFERS = "evidence.layout_differs"
EFFECT_SLOWED = "evidence.effect_slowed"
EFFECT_NONE = "evidence.effect_none"
CLOCK_FELL = "evidence.clock_fell"
ONLY_PORT = "evidence.only_port"

MISSING_GID_TABLE = "missing.gid_table"
MISSING_HOST_LOG = "missing.host_log"
MISSING_FIRST_USE = "missing.first_use"
MISSING_PEER_END = "missing.peer_end"
MISSING_LINK_LAYER = "missing.link_layer"
MISSING_LINK_MAP = "missing.link_map"
MISSING_WHOLE_MAP = "missing.whole_link_map"
MISSING_LOSS_COUNTERS = "missing.loss_counters"
MISSING_LINK_EFFECT = "missing.link_effect"
MISSING_NIC_BANDWIDTH = "missing.nic_bandwidth"
MISSING_ROUNDS = "missing.rounds"
MISSING_PORT_COUNTERS = "missing.port_counters"
MISSING_PAIRS = "missing.pairs"
MISSING_DIFFERENCE = "missing.difference"
MISSING_ONE_DIFFERENCE = "missing.one_difference"
MISSING_SAME_HOSTS = "missing.same_hosts"
MISSING_NUMA = "missing.numa"
MISSING_LINK_CAUSE = "missing.link_cause"
MISSING_DIGESTS = "missing.digests"
MISSING_EFFECT = "missing.effect"
MISSING_PEER_MATRIX = "missing.peer_matrix"

USE_GID = "action.use_gid"
RESTART_NODE = "action.restart_node"
CROSS_NIC_OFF = "action.cross_nic_off"
SET_MTU = "action.set_mtu"
CHECK_PORT = "action.check_port"
CHECK_FLOW_CONTROL = "action.check_flow_control"
EDIT_TOPOLOGY = "action.edit_topology"
SWAP_PAIRS = "action.swap_pairs"
TRACE_RING = "action.trace_ring"
ENLARGE_CHUNK = "action.enlarge_chunk"
SET_BACK = "action.set_back"
BIND_LOCAL = "action.bind_local"
TRY_WITHOUT_P2P = "action.try_without_p2p"
ACCESS_CONTROL_OFF = "action.access_control_off"
SEAT_BRIDGE = "action.seat_bridge"
P2P_ON = "action.p2p_on"
GIVE_TREE = "action.give_tree"
FIX_ALGORITHM = "action.fix_algorithm"

CODES: dict[str, tuple[str, ...]] = {
    # transfers of these ranks got no answer; age_ns after their communicator was made
    AT_FIRST_USE: ("ranks", "peers", "age_ns"),
    LATE_ERROR: ("ranks", "peers", "age_ns"),
    UNANSWERED: ("ranks", "peers"),
    GID_LINK_LOCAL: ("ranks", "gid", "remote_gid"),
    # the entry in use, and all entries of that table as "index GID version"
    GID_USED: ("host", "device", "index", "entries"),
    # moved_to -1: the former GID is in no entry now
    GID_DRIFT: ("host", "device", "index", "before", "after", "moved_to"),
    # rails of both ends of the pairs that failed; n_good pairs of one rail worked
    CROSS_RAIL: ("pairs", "n_good"),
    # the log line is in Evidence.text
    HOST_EVENT: ("host", "event", "delay_ns"),
    PORT_DOWN: ("host", "device"),
    PORT_BACK: ("host", "device", "after_ns"),
    FAILED_AFTER: ("ranks", "delay_ns"),
    MTU_DIFFERS: ("host", "device", "mtu_bytes", "other_host", "other_device", "other_bytes"),
    # usual is the median of the same counter on the other ports
    COUNTER_ROSE: ("host", "device", "counter", "n", "usual"),
    COUNTERS_STILL: ("counters", "n_ports"),
    SIZE_DIP: ("op", "low_bytes", "high_bytes", "busbw_gbs", "usual_gbs"),
    NIC_USERS: ("host", "device", "ranks"),
    NIC_ALONE: ("n_hosts",),
    SLOW_GROUPS: ("comms", "busbw_gbs", "usual_gbs"),
    CEILING: ("ceiling_gbs", "n_links", "n_listed", "busbw_gbs"),
    PORT_RATE: ("host", "device", "rate_gbs", "usual_gbs"),
    SLOW_PATH: ("path", "busbw_gbs", "usual_gbs"),
    # what all n_slow slow paths have in common and none of the n_good others
    SLOW_PLACE: ("place", "n_slow", "n_good"),
    FELL_AT: ("step",),
    # startup and rate of a path before and after
    FIT_DRIFTED: ("before_ns", "after_ns", "before_gbs", "after_gbs"),
    SLOW_CANDIDATES: ("places", "busbw_gbs", "usual_gbs"),
    ONLY_FROM_HOSTS: ("n_hosts", "busbw_gbs", "pair_gbs", "edges"),
    LATENCY_BOUND: ("latency_ns", "low_bytes", "low_gbs", "high_bytes", "high_gbs"),
    RUN_SLOWER: ("ops", "busbw_gbs", "usual_gbs"),
    RUN_SPREAD: ("low_gbs", "high_gbs"),
    OP_ALONE: ("ops", "others"),
    # value "" where a run does not set it
    RUN_SETTING: ("name", "value", "other"),
    VERSION_DIFFERS: ("version", "other"),
    GRAPH_DIFFERS: ("graph", "other"),
    MASK_DIFFERS: ("host", "gpus", "mask", "other"),
    MASK_NOT_LOCAL: ("host", "gpu", "numa_node"),
    REDIRECTS: ("host", "bridges", "devices"),
    P2P_IN_USE: ("ranks",),
    PAIRS_FAIL: ("host", "pairs", "paths"),
    PAIRS_WORK: ("host", "pairs", "paths"),
    NVLINK_DOWN: ("host", "device", "n_up", "n_links"),
    P2P_OFF: ("name", "value", "n_links"),
    NO_SWITCH: ("host", "n_gpus", "n_nics"),
    GDR_OFF: ("host",),
    # the same on all ranks of each run, different between the runs
    RESULTS_DIFFER: ("name", "n_ranks", "n_calls"),
    ORDER_IN_SWITCH: ("algo", "sizes"),
    # each as "op size -> algorithm"
    ALGO_BY_SIZE: ("table", "other"),
    ALGO_DIFFERS: ("op", "n_bytes", "algo", "other"),
    LAYOUT_DIFFERS: ("op", "sizes", "other"),
    EFFECT_SLOWED: ("host", "device", "counter", "ratio", "first_step", "last_step"),
    EFFECT_NONE: ("host", "device", "counter", "n_steps"),
    CLOCK_FELL: ("host", "device", "counter", "before", "after"),
    # ranks that use this port and no other, by the lines of their channels
    ONLY_PORT: ("ranks", "host", "device"),
    MISSING_GID_TABLE: (),
    MISSING_HOST_LOG: ("hosts",),
    # whether this path worked before
    MISSING_FIRST_USE: ("ranks",),
    # whether the process at the other end lived
    MISSING_PEER_END: ("peers",),
    MISSING_LINK_LAYER: (),
    MISSING_LINK_MAP: (),
    # the map of links lacks ports of some rank of the host, or may
    MISSING_WHOLE_MAP: ("host",),
    MISSING_LOSS_COUNTERS: ("counters",),
    MISSING_LINK_EFFECT: ("host", "device"),
    MISSING_NIC_BANDWIDTH: ("host", "device"),
    MISSING_ROUNDS: ("places",),
    MISSING_PORT_COUNTERS: (),
    MISSING_PAIRS: ("pairs",),
    MISSING_DIFFERENCE: (),
    # several things differ between the runs, so none can be named alone
    MISSING_ONE_DIFFERENCE: ("names",),
    MISSING_SAME_HOSTS: (),
    MISSING_NUMA: ("host",),
    MISSING_LINK_CAUSE: (),
    MISSING_DIGESTS: (),
    # reason is a code of its own
    MISSING_EFFECT: ("host", "device", "counter", "reason"),
    MISSING_PEER_MATRIX: (),
    USE_GID: ("index",),
    RESTART_NODE: ("host",),
    CROSS_NIC_OFF: (),
    SET_MTU: ("hosts",),
    CHECK_PORT: ("host", "device"),
    CHECK_FLOW_CONTROL: (),
    EDIT_TOPOLOGY: ("host",),
    SWAP_PAIRS: ("places",),
    TRACE_RING: (),
    ENLARGE_CHUNK: (),
    SET_BACK: ("name", "value"),
    BIND_LOCAL: ("host",),
    TRY_WITHOUT_P2P: (),
    ACCESS_CONTROL_OFF: ("host",),
    SEAT_BRIDGE: ("host", "device"),
    P2P_ON: ("name",),
    GIVE_TREE: ("host",),
    FIX_ALGORITHM: (),
}

MEASURES: tuple[str, ...] = (
    "busbw_gbs",
    "usual_gbs",
    "ceiling_gbs",
    "latency_ns",
    "rate_gbs",
    "since_start_ns",
    "slowdown_ratio",
    "p_value",
)
