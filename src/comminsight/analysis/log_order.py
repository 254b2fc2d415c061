"""Which of two lines was written first, as far as their stamps tell.

Stamps of one file, or of one host, are of one zone even where none is written. Lines of several
ranks in one file stand in the order in which they were collected, which is not that of their
writing: where stamps do not tell, nothing does.
"""

from __future__ import annotations

from comminsight.analysis.log_ranks import short_host
from comminsight.model.log_event import ClockKind, LogEvent

UNZONED_ERROR_NS = 12 * 3600 * 1_000_000_000  # more than any clock is off: only the zone is open
MARGIN_NS = 1_000_000_000  # stamps of whole seconds, and clocks of hosts that do not quite agree


def apart_at_least_ns(first: LogEvent, second: LogEvent) -> int | None:
    """By how much at least ``second`` is later than ``first``, negative where it may be earlier;
    None where the two stamps cannot be compared."""
    a, b = first.time, second.time
    if a.kind is not b.kind or a.kind is ClockKind.NONE or min(a.error_ns, b.error_ns) < 0:
        return None
    is_one_file = bool(first.file) and first.file == second.file
    is_one_host = bool(first.host) and short_host(first.host) == short_host(second.host)
    if a.kind is ClockKind.BOOT and not (is_one_file or is_one_host):
        return None
    error_ns = a.error_ns + b.error_ns
    if is_one_file or is_one_host:
        are_unzoned = min(a.error_ns, b.error_ns) > UNZONED_ERROR_NS
        error_ns = 0 if are_unzoned else error_ns
    elif a.kind is ClockKind.NO_YEAR:
        return None
    return b.ns - a.ns - error_ns


def is_before(first: LogEvent, second: LogEvent, *, margin_ns: int = MARGIN_NS) -> bool:
    """True when ``first`` was certainly written more than ``margin_ns`` before ``second``."""
    apart_ns = apart_at_least_ns(first, second)
    return apart_ns is not None and apart_ns > margin_ns


def is_earlier_line(first: LogEvent, second: LogEvent) -> bool:
    """True when both lines are of one process and ``first`` was written first: by their places in
    one file, else by their stamps."""
    if first.file == second.file:
        return first.line < second.line
    return is_before(first, second)
