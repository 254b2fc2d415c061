"""Whether pauses tell that several found steps are one: their length has a period."""

from __future__ import annotations

from collections import Counter

import numpy as np

from comminsight.model.step import StepSummary

_MIN_ROUNDS = 4
_FACTOR = 2.0  # times what the shorter half of the pauses takes
_MOSTLY = 0.75  # of the long pauses come at one distance: a lost record shifts one
_EXPLAINED = 0.8  # of the variance, by the place in the period


def look_like_parts(steps: list[StepSummary]) -> bool:
    """Whether the gaps behind the steps have a period: what was found are parts of a step, as
    microbatches and layers are."""
    gaps_ns = np.array([step.gap_ns for step in steps if step.period_ns], np.int64)
    if len(gaps_ns) < 2 * _MIN_ROUNDS:
        return False
    return _has_long_ones_in_turn(gaps_ns) or _has_period(gaps_ns)


def _has_long_ones_in_turn(gaps_ns: np.ndarray) -> bool:
    """Whether pauses that are by far the longest come at one distance of at least two."""
    is_long = gaps_ns > _FACTOR * np.quantile(gaps_ns, 0.25)
    distances = np.diff(np.flatnonzero(is_long)).tolist()
    if len(distances) < _MIN_ROUNDS - 1:
        return False
    distance, n_times = Counter(distances).most_common(1)[0]
    return distance > 1 and n_times >= _MOSTLY * len(distances)


def _has_period(gaps_ns: np.ndarray) -> bool:
    """Whether the place in some period explains most of how the pauses differ, by their ranks."""
    ranks = np.argsort(np.argsort(gaps_ns, kind="stable"), kind="stable").astype(np.float64)
    for n in range(2, len(ranks) // _MIN_ROUNDS + 1):
        rounds = ranks[: len(ranks) // n * n].reshape(-1, n)
        within = rounds.var(axis=0).mean()
        if within < (1 - _EXPLAINED) * rounds.var():
            return True
    return False
