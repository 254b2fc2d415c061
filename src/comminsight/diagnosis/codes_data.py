"""Message codes of the rules on data quality and on exposed communication; see codes.py."""

from __future__ import annotations

EXPOSED = "evidence.exposed"
EXPOSED_CLASS = "evidence.exposed_class"
FOLLOWS = "evidence.follows"
ONE_STREAM = "evidence.one_stream"
LATE_BYTES = "evidence.late_bytes"
SMALL_OPS = "evidence.small_ops"
REVERSED = "evidence.reversed"
ABSURD_SIZE = "evidence.absurd_size"
UNEQUAL_ENDS = "evidence.unequal_ends"
ZERO_STAMPS = "evidence.zero_stamps"
HOLES = "evidence.holes"
EARLY_END = "evidence.early_end"
LOST_KERNELS = "evidence.lost_kernels"
NO_COMMUNICATION = "evidence.no_communication"
DARK = "evidence.dark"
ARRIVALS = "evidence.arrivals"
BY_ORDER = "evidence.by_order"
ALIGNED = "evidence.aligned"
SOCKETS = "evidence.sockets"

MISSING_KNEE = "missing.knee"
MISSING_BASELINE = "missing.baseline"
MISSING_NAMES = "missing.names"

PREFETCH = "action.prefetch"
TWO_STREAMS = "action.two_streams"
FIND_DEPENDENCY = "action.find_dependency"
LARGER_BUCKETS = "action.larger_buckets"
EARLIER_BUCKETS = "action.earlier_buckets"
CAPTURE_AGAIN = "action.capture_again"
USE_PORTS = "action.use_ports"

CODES: dict[str, tuple[str, ...]] = {
    # a median over steps and ranks, and its share of the step
    EXPOSED: ("exposed_ns", "ratio", "n_steps", "n_ranks"),
    # the class with most exposed time; ratio is of all exposed time
    EXPOSED_CLASS: ("name", "comm", "ratio"),
    FOLLOWS: ("after", "before", "n_after", "n"),
    ONE_STREAM: ("first", "second"),
    # share of the bytes that begin in the last 10 % of the backward pass
    LATE_BYTES: ("ratio",),
    SMALL_OPS: ("n_ops", "size_bytes", "knee_bytes", "ratio"),
    REVERSED: ("comm", "place", "n", "shift_ns"),
    ABSURD_SIZE: ("rank", "name", "n"),
    UNEQUAL_ENDS: ("name", "comm", "spread_ns", "duration_ns", "n"),
    ZERO_STAMPS: ("ranks", "n"),
    HOLES: ("rank", "comm", "n", "first", "last"),
    EARLY_END: ("rank", "comm", "last", "others"),
    LOST_KERNELS: ("rank", "n_launches", "n_kernels"),
    NO_COMMUNICATION: ("n_ranks", "n_kernels"),
    # communication kernels of no library that tells its ops, and their share of the time
    DARK: ("names", "ratio"),
    # shares of the time in ops of one class
    ARRIVALS: ("name", "duration_ns", "skew_ratio", "transfer_ratio", "other_ratio", "n"),
    BY_ORDER: ("n",),
    # how far clocks were moved at most, and how far ends still differ
    ALIGNED: ("shift_ns", "residual_ns"),
    # what the fastest active port carries, and what was reached
    SOCKETS: ("rate_gbs", "busbw_gbs"),
    MISSING_KNEE: (),
    MISSING_BASELINE: ("name",),
    MISSING_NAMES: ("names",),
    PREFETCH: ("name",),
    TWO_STREAMS: ("first", "second"),
    FIND_DEPENDENCY: ("after", "before"),
    LARGER_BUCKETS: ("knee_bytes",),
    EARLIER_BUCKETS: (),
    CAPTURE_AGAIN: (),
    USE_PORTS: (),
}

MEASURES: tuple[str, ...] = ("exposed_ns", "exposed_ratio", "overlap_ratio", "n_small_ops")
