"""Every field case that can be built, and why the others cannot."""

from __future__ import annotations

from tests.cases import (
    class_01_dead_ranks,
    class_02_control_flow,
    class_03_unlike_calls,
    class_04_groups,
    class_04b_messages,
    class_05_stragglers,
    class_05b_chains,
    class_05c_links,
    class_06b_preparation,
    class_07_bandwidth,
    class_07_transport,
    class_08_init,
    class_09_topology,
    class_10_limits,
    class_11_sums,
    class_12_watchdogs,
    class_13_versions,
    class_14_data,
    class_14a_flight_recorder,
    class_14c_ras,
    class_14d_traces,
    class_14e_inspector,
    class_15_exposed,
    class_16_serving,
)
from tests.cases.field_case import FieldCase

CLASSES = {
    1: ("a rank crashes or exits", range(1, 6)),
    2: ("control flow diverges", range(6, 15)),
    3: ("order, shape or dtype differ", range(15, 23)),
    4: ("groups and streams", range(23, 36)),
    5: ("compute straggler, imbalance", range(36, 46)),
    6: ("loader, GC, checkpoint", range(46, 51)),
    7: ("link, NIC, GID, MTU", range(51, 67)),
    8: ("init, store, interface", range(67, 75)),
    9: ("topology, PCI, NUMA", range(75, 82)),
    10: ("memory and limits", range(82, 89)),
    11: ("non-determinism", range(89, 92)),
    12: ("watchdog and timeouts", range(92, 99)),
    13: ("versions and plugins", range(99, 106)),
    14: ("tools that fail", range(106, 127)),
    15: ("exposed communication", range(127, 133)),
    16: ("inference serving", range(133, 141)),
}

CASES: tuple[FieldCase, ...] = (
    *class_01_dead_ranks.CASES,
    *class_02_control_flow.CASES,
    *class_03_unlike_calls.CASES,
    *class_04_groups.CASES,
    *class_04b_messages.CASES,
    *class_05_stragglers.CASES,
    *class_05b_chains.CASES,
    *class_05c_links.CASES,
    *class_07_bandwidth.CASES,
    *class_06b_preparation.CASES,
    *class_07_transport.CASES,
    *class_09_topology.CASES,
    *class_11_sums.CASES,
    *class_08_init.CASES,
    *class_10_limits.CASES,
    *class_12_watchdogs.CASES,
    *class_13_versions.CASES,
    *class_14a_flight_recorder.CASES,
    *class_14_data.CASES,
    *class_14c_ras.CASES,
    *class_14d_traces.CASES,
    *class_14e_inspector.CASES,
    *class_15_exposed.CASES,
    *class_16_serving.CASES,
)

NOT_COVERED: dict[int, str] = {
    98: "about the log of a long-running agent, which is not there yet",
    113: "no verdict is about single channels (that an op lasts from its first channel's start to "
    "its last one's stop is tested where it is recorded, and where the Inspector's lines are read)",
    116: "what CUDA graphs hide from a capture cannot be told from groups that are not used",
    126: "about files that viewers refuse: no trace is exported yet",
}
