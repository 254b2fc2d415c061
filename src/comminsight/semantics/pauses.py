"""Whether pauses tell that several found steps are one: every nth pause is by far the longest."""

from __future__ import annotations

from collections import Counter

import numpy as np

from comminsight.model.step import StepSummary

_FACTOR = 2.0  # times what the shorter half of the pauses takes
_MIN_ROUNDS = 4
_MOSTLY = 0.75  # of the long pauses come at one distance: a lost record shifts one


def look_like_microbatches(steps: list[StepSummary]) -> bool:
    """Whether the gaps behind the steps have a period: what was found are parts of a step."""
    gaps_ns = np.array([step.gap_ns for step in steps if step.period_ns], np.int64)
    if len(gaps_ns) < 2 * _MIN_ROUNDS:
        return False
    is_long = gaps_ns > _FACTOR * np.quantile(gaps_ns, 0.25)
    distances = np.diff(np.flatnonzero(is_long)).tolist()
    if len(distances) < _MIN_ROUNDS - 1:
        return False
    distance, n_times = Counter(distances).most_common(1)[0]
    return distance > 1 and n_times >= _MOSTLY * len(distances)
