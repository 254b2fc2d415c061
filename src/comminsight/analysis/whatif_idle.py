"""Time at a place of the program that most ranks need and one does without: work, or a wait?

Where the middle rank takes far longer than the fastest one, the fastest may do less by design, or
the others wait for what was not recorded. Nothing in the records tells which. The middle stays what
is expected of a rank; the difference is kept out of comparisons between stages, and it is named.
"""

from __future__ import annotations

import numpy as np

from comminsight.analysis.whatif_excess import lower_median
from comminsight.analysis.whatif_grid import Grid

LEAST_RATIO = 0.05  # of a step


def idle_of(grid: Grid, step_ns: float) -> np.ndarray:
    """What of ``grid.work_ns`` is beyond the fastest rank at such places, its shape, ns >= 0."""
    middle = np.median(grid.work_ns, axis=0)
    fastest = middle.min(axis=0)
    is_open = lower_median(middle, axis=0) - fastest > LEAST_RATIO * step_ns
    idle: np.ndarray = np.maximum(grid.work_ns - fastest, 0) * is_open
    return idle
