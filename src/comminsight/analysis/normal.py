"""What is normal for one place in a program, and what of an observation is beyond it.

The normal *work* of a place is the larger of two: the lower median of the ranks that ran the same
program in the same step (a step that is heavy for all blames nobody), and the 40 % quantile of
the same place over all steps and ranks (so that one or two slow ranks, or half a run, do not
become normal). The normal *transfer* of a place is the quantile alone: members of one transfer
are slow together, so they cannot be each other's measure. A place seen once has no excess.

A program that only one rank runs has no peers: it is compared with its own other steps only, so
that a rank which is slow from the first step to the last is its own normal there and no excess is
seen. The same holds for all ranks of a program that are slow together.
"""

from __future__ import annotations

import numpy as np

NORMAL_QUANTILE = 0.4  # below one half: the healthy side when half the observations are slow


def work_excess_ns(work_ns: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Work beyond the normal, ``(n_runs, n_ops)`` int64 >= 0; ``steps[n_runs]`` numbers steps."""
    normal = np.broadcast_to(_low(work_ns, NORMAL_QUANTILE), work_ns.shape).copy()
    _, step, n_peers = np.unique(steps, return_inverse=True, return_counts=True)
    for n in np.unique(n_peers[n_peers > 1]):  # steps with equally many peers at once
        alike = np.flatnonzero(n_peers[step] == n)
        runs = alike[np.argsort(step[alike], kind="stable")].reshape(-1, n)
        median = _low(work_ns[runs], 0.5, axis=1)[:, None]
        normal[runs] = np.maximum(normal[runs], median)
    excess: np.ndarray = np.maximum(work_ns - normal, 0)
    return excess


def transfer_excess_ns(transfer_ns: np.ndarray) -> np.ndarray:
    """Transfer beyond the normal, ``(n_runs, n_ops)`` int64 >= 0."""
    excess: np.ndarray = np.maximum(transfer_ns - _low(transfer_ns, NORMAL_QUANTILE), 0)
    return excess


def _low(values: np.ndarray, quantile: float, axis: int = 0) -> np.ndarray:
    """Order statistic at or below the quantile along the axis."""
    nth = int((values.shape[axis] - 1) * quantile)
    low: np.ndarray = np.partition(values, nth, axis=axis).take(nth, axis=axis)
    return low
