"""Which what-ifs say something: bounds that decide nothing are called so, with the reason."""

from __future__ import annotations

from comminsight.model.event import UNBOUNDED_NS
from comminsight.model.verdict import Message

MIN_STEPS = 5
MAX_WIDTH_RATIO = (
    0.1  # of the step: bounds further apart than this, and than the gain, decide nothing
)

FEW_STEPS = "what_if.few_steps"
NO_PEERS = "what_if.no_peers"
WIDE = "what_if.wide"
MAY_WAIT = "what_if.may_wait"
CLOCK = "what_if.clock"
NO_CLOCK = "what_if.no_clock"
LEAST_RATIO = 0.01  # of the step: a part that gains less is not waited for by much


def cannot_tell(
    low_ns: float, expected_ns: float, high_ns: float, *, step_ns: float, n_steps: int,
    has_peers: bool = True, idle_ns: float = 0.0, clock_error_ns: int = 0,
) -> Message | None:  # fmt: skip
    """Why the bounds of a gain decide nothing; None where they do.

    Wide bounds around a large gain still say that there is one: it is the gain that must be larger
    than what is not known about it. ``idle_ns`` is time of other ranks that may be a wait for this
    part, in something that was not recorded. A gain below the ``clock_error_ns`` of ranks that are
    compared across nodes may be nothing but that error; UNBOUNDED_NS where nothing bounds it.
    """
    if n_steps < MIN_STEPS:
        return Message(FEW_STEPS, {"n_steps": n_steps, "n_needed": MIN_STEPS})
    if not has_peers:
        return Message(NO_PEERS, {})
    if clock_error_ns >= UNBOUNDED_NS:
        return Message(NO_CLOCK, {})
    if clock_error_ns > expected_ns and high_ns >= LEAST_RATIO * step_ns:
        return Message(CLOCK, {"error_ns": clock_error_ns})
    width_ns = high_ns - low_ns
    if width_ns > MAX_WIDTH_RATIO * step_ns and width_ns > expected_ns:
        return Message(WIDE, {"low_ns": round(low_ns), "high_ns": round(high_ns)})
    if idle_ns > expected_ns >= LEAST_RATIO * step_ns:
        return Message(MAY_WAIT, {"idle_ns": round(idle_ns)})
    return None
