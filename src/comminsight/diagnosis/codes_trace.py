"""Message codes of what is missing in traces of profilers; see codes.py."""

from __future__ import annotations

TRACE_EVENTS = "missing.trace_events"
TRACE_ORDER = "missing.trace_order"

CODES: dict[str, tuple[str, ...]] = {
    # device events of one file whose stamps are no times
    TRACE_EVENTS: ("n", "source"),
    # communicators whose ops two ranks show in different numbers or at different times
    TRACE_ORDER: ("n",),
}
