"""Message codes of what is missing in traces of profilers; see codes.py."""

from __future__ import annotations

TRACE_EVENTS = "missing.trace_events"
TRACE_ORDER = "missing.trace_order"

CODES: dict[str, tuple[str, ...]] = {
    # device events of one file whose stamps are no times
    TRACE_EVENTS: ("n", "source"),
    # communicators of which two ranks show different numbers of ops in a step
    TRACE_ORDER: ("n",),
}
