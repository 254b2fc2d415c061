"""Message codes of what is missing in traces of profilers; see codes.py."""

from __future__ import annotations

TRACE_EVENTS = "missing.trace_events"
TRACE_ORDER = "missing.trace_order"
TRACE_COMPUTE = "missing.trace_compute"
WORLD_INFERRED = "missing.world_inferred"
INSPECTOR_STARTS = "missing.inspector_starts"
INSPECTOR_ORDER = "missing.inspector_order"
INSPECTOR_SIZES = "missing.inspector_sizes"
INSPECTOR_RANKS = "missing.inspector_ranks"
INSPECTOR_LINES = "missing.inspector_lines"
INSPECTOR_VALUES = "missing.inspector_values"
INSPECTOR_DROPPED = "missing.inspector_dropped"
INSPECTOR_HOLES = "missing.inspector_holes"

CODES: dict[str, tuple[str, ...]] = {
    # device events of one file whose stamps are no times
    TRACE_EVENTS: ("n", "source"),
    # communicators whose ops two ranks show in different numbers or at different times
    TRACE_ORDER: ("n",),
    # ranks whose profile holds communication only: nothing of theirs is known to be exposed
    TRACE_COMPUTE: ("ranks",),
    # the largest communicator, where nothing else tells how many ranks the job has
    WORLD_INFERRED: ("n_ranks",),
    # ops without a time of their own; 0 ops have one if all lack it
    INSPECTOR_STARTS: ("n",),
    INSPECTOR_ORDER: (),
    # the smallest op that was recorded
    INSPECTOR_SIZES: ("size",),
    INSPECTOR_RANKS: (),
    # lines that are no record, or of which nobody can tell the communicator
    INSPECTOR_LINES: ("n",),
    # fields that hold no value: bandwidths that are no number, sizes of types it did not know
    INSPECTOR_VALUES: ("n",),
    INSPECTOR_DROPPED: ("n",),
    # op numbers that are absent between the first and last of a rank's own
    INSPECTOR_HOLES: ("n",),
}
