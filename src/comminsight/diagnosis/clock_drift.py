"""Clocks of nodes that drift apart: a limit of all waits between them, and nobody's fault.

A drift of tens of parts in a million is what clocks do; one that no clock has is corrupt data, and
told by ``recorded_data``.
"""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.clock_drift import clock_drifts
from comminsight.diagnosis.recorded_data import MAX_DRIFT_RATIO
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Message

CLOCK_DRIFT = "note.clock_drift"
MIN_SHIFT_NS = 50_000  # less is no more than the ends of one collective lie apart
MAX_TOLD = 4


def clock_drift_notes(trace: RunTrace) -> Iterator[Message]:
    """Of the nodes whose clocks drift most, where a straight line explains nearly all of it."""
    clear = [
        one
        for one in clock_drifts(trace)
        if one.line.is_clear
        and one.line.shift_ns > MIN_SHIFT_NS
        and abs(one.line.ratio) <= MAX_DRIFT_RATIO
    ]
    for one in sorted(clear, key=lambda drift: -drift.line.shift_ns)[:MAX_TOLD]:
        yield Message(CLOCK_DRIFT, {
            "node": one.host, "other": one.other, "shift_ns": one.line.shift_ns,
            "span_ns": one.span_ns, "error_ns": one.error_ns,
        })  # fmt: skip
