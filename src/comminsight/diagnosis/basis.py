"""What a straggler verdict rests on: complete steps of all ranks, and enough of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from comminsight.diagnosis import codes
from comminsight.diagnosis.codes import message
from comminsight.model.measures import StragglerMeasures
from comminsight.model.verdict import Coverage, Message

MIN_STEPS = 8
MIN_USED_RATIO = 0.5  # complete steps among all
MAX_UNTIMED_RATIO = 0.01  # ops of which only the call was seen: waits in them look like work
MAX_LOST_RATIO = 0.05  # records lost among all

_PER_STEP = (
    "steps", "is_complete", "span_ns", "period_ns", "index_pct", "caused_wait_ns", "waited_ns",
    "own_delay_ns", "transfer_delay_ns", "passed_on_ns", "step_cost_ns", "moved_bytes",
    "input_wait_ns",
)  # fmt: skip


def missing_basis(measures: StragglerMeasures, coverage: Coverage) -> list[Message]:
    """What stands against any verdict at all."""
    missing = []
    if coverage.ranks_missing or len(measures.global_ranks) < coverage.ranks_expected:
        missing.append(message(codes.MISSING_RANKS, ranks=list(coverage.ranks_missing)))
    total = coverage.records_read + coverage.records_lost
    if coverage.records_lost > MAX_LOST_RATIO * total:
        missing.append(message(codes.MISSING_RECORDS, ranks=[], lost=coverage.records_lost))
    if measures.untimed_ratio > MAX_UNTIMED_RATIO:
        missing.append(message(codes.MISSING_RUNS, ratio=measures.untimed_ratio))
    n_steps = len(measures.steps)
    n_used = int(measures.is_complete.all(axis=1).sum()) if measures.is_complete.size else 0
    if n_used < MIN_STEPS:
        missing.append(message(codes.MISSING_STEPS, used=n_used, needed=MIN_STEPS))
    elif n_used < MIN_USED_RATIO * n_steps:
        excluded = n_steps - n_used
        missing.append(message(codes.MISSING_COMPLETE_STEPS, used=n_used, excluded=excluded))
    return missing


def complete_steps(measures: StragglerMeasures) -> StragglerMeasures:
    """Only the steps that every rank has complete."""
    rows = measures.is_complete.all(axis=1)
    values = {name: getattr(measures, name) for name in _PER_STEP}
    kept = {name: value[rows] for name, value in values.items() if value is not None}
    return replace(measures, **kept)


def step_times_ns(measures: StragglerMeasures) -> np.ndarray:
    """Step time as a user feels it: the period, the span where there is no next step."""
    times_ns = np.where(measures.period_ns > 0, measures.period_ns, measures.span_ns)
    median_ns: np.ndarray = np.median(times_ns, axis=1)
    return median_ns
