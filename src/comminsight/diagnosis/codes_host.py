"""Message codes of what files about hosts and links do not tell; see codes.py."""

from __future__ import annotations

HOMELESS = "missing.host_of_ports"
NAMELESS = "missing.port_of_counters"
TIMELESS = "missing.time_of_samples"
DENIED = "missing.bridges_denied"
COUNTER_LINES = "missing.counter_lines"
UNKNOWN_TEST = "missing.test_op"
TEST_ROWS = "missing.test_rows"
TEST_WRONG = "missing.test_wrong"

CODES: dict[str, tuple[str, ...]] = {
    # ports and GIDs of a file that nothing says the host of
    HOMELESS: ("n", "source"),
    # ports by their LID alone, which no ibstat has
    NAMELESS: ("n",),
    # samples of a counter of which another one stands in the same file, both without a time
    TIMELESS: ("n", "source"),
    # devices of which lspci did not show the capabilities
    DENIED: ("n", "source"),
    # lines of a table of counters that are no samples
    COUNTER_LINES: ("n", "source"),
    # a table of nccl-tests of which nothing tells the collective
    UNKNOWN_TEST: ("source",),
    # rows of such a table that do not read, and results that the test found wrong
    TEST_ROWS: ("n", "source"),
    TEST_WRONG: ("n", "source"),
}
