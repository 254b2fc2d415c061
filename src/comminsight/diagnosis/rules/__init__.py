"""Every rule on the evidence of a job, in one list.

Where two findings stand side by side, that of the earlier rule is told first; of two that account
for each other, and whose times do not decide, it stays. So records and dumps, which show each rank,
come before lines of logs, which tell what somebody noticed; a path that gave way before the ranks
that ended by it; what ran out before the versions in use; the quality of data and speed last, since
neither stops a job.
"""

from __future__ import annotations

from comminsight.diagnosis.claim import Rule
from comminsight.diagnosis.rules.arrival import arrival_rule
from comminsight.diagnosis.rules.ascend import ascend_rule
from comminsight.diagnosis.rules.chunk_latency import chunk_latency_rule
from comminsight.diagnosis.rules.comm_memory import comm_memory_rule
from comminsight.diagnosis.rules.counter_effects import counter_effects_rule
from comminsight.diagnosis.rules.dark import dark_rule
from comminsight.diagnosis.rules.data_holes import data_holes_rule
from comminsight.diagnosis.rules.data_stamps import data_stamps_rule
from comminsight.diagnosis.rules.descriptors import descriptors_rule
from comminsight.diagnosis.rules.duplicate_gpu import duplicate_gpu_rule
from comminsight.diagnosis.rules.exposure import exposure_rule
from comminsight.diagnosis.rules.fingerprint import fingerprint_rule
from comminsight.diagnosis.rules.foreign_root import foreign_root_rule
from comminsight.diagnosis.rules.gloo_sizes import gloo_sizes_rule
from comminsight.diagnosis.rules.groups import group_rule
from comminsight.diagnosis.rules.hang import hang_rule
from comminsight.diagnosis.rules.heartbeat import heartbeat_rule
from comminsight.diagnosis.rules.idle import idle_rule
from comminsight.diagnosis.rules.init_network import init_network_rule
from comminsight.diagnosis.rules.init_stuck import init_stuck_rule
from comminsight.diagnosis.rules.known_versions import known_versions_rule
from comminsight.diagnosis.rules.link_flap import link_flap_rule
from comminsight.diagnosis.rules.log_hang import log_hang_rule
from comminsight.diagnosis.rules.logged_calls import logged_calls_rule
from comminsight.diagnosis.rules.logged_work import logged_work_rule
from comminsight.diagnosis.rules.many_hosts import many_hosts_rule
from comminsight.diagnosis.rules.mismatch_echo import mismatch_echo_rule
from comminsight.diagnosis.rules.monitored_barrier import monitored_barrier_rule
from comminsight.diagnosis.rules.mtu import mtu_rule
from comminsight.diagnosis.rules.nic_shared import nic_shared_rule
from comminsight.diagnosis.rules.no_overlap import no_overlap_rule
from comminsight.diagnosis.rules.nondeterminism import nondeterminism_rule
from comminsight.diagnosis.rules.open_inits import open_inits_rule
from comminsight.diagnosis.rules.p2p_blocked import p2p_blocked_rule, p2p_off_rule
from comminsight.diagnosis.rules.plugin_fallback import plugin_fallback_rule
from comminsight.diagnosis.rules.port_rate import ceiling_rule, nic_asymmetry_rule
from comminsight.diagnosis.rules.rank_ends import rank_ends_rule
from comminsight.diagnosis.rules.ras import ras_rule
from comminsight.diagnosis.rules.rdma_memory import rdma_memory_rule
from comminsight.diagnosis.rules.recorded import recorded_rule
from comminsight.diagnosis.rules.roce_loss import roce_loss_rule
from comminsight.diagnosis.rules.scheduler_ends import scheduler_ends_rule
from comminsight.diagnosis.rules.serving import serving_rule
from comminsight.diagnosis.rules.shared_memory import shared_memory_rule
from comminsight.diagnosis.rules.slow_place import slow_place_rule
from comminsight.diagnosis.rules.slow_transport import slow_transport_rule
from comminsight.diagnosis.rules.slower_run import slower_run_rule
from comminsight.diagnosis.rules.small_messages import small_messages_rule
from comminsight.diagnosis.rules.topology import topology_rule
from comminsight.diagnosis.rules.unanswered import unanswered_rule
from comminsight.diagnosis.rules.unreachable import unreachable_rule
from comminsight.diagnosis.rules.version_skew import version_skew_rule

RULES: tuple[Rule, ...] = (
    recorded_rule,
    group_rule,
    open_inits_rule,
    foreign_root_rule,
    hang_rule,
    ras_rule,
    fingerprint_rule,
    logged_calls_rule,
    mismatch_echo_rule,
    gloo_sizes_rule,
    ascend_rule,
    serving_rule,
    link_flap_rule,
    mtu_rule,
    unreachable_rule,
    unanswered_rule,
    p2p_blocked_rule,
    roce_loss_rule,
    nic_shared_rule,
    nic_asymmetry_rule,
    many_hosts_rule,
    slow_place_rule,
    ceiling_rule,
    slow_transport_rule,
    slower_run_rule,
    topology_rule,
    nondeterminism_rule,
    counter_effects_rule,
    chunk_latency_rule,
    p2p_off_rule,
    rank_ends_rule,
    scheduler_ends_rule,
    logged_work_rule,
    log_hang_rule,
    monitored_barrier_rule,
    heartbeat_rule,
    idle_rule,
    init_stuck_rule,
    duplicate_gpu_rule,
    init_network_rule,
    shared_memory_rule,
    rdma_memory_rule,
    descriptors_rule,
    comm_memory_rule,
    known_versions_rule,
    version_skew_rule,
    plugin_fallback_rule,
    data_stamps_rule,
    data_holes_rule,
    arrival_rule,
    exposure_rule,
    no_overlap_rule,
    small_messages_rule,
    dark_rule,
)
