"""Found steps of a sharded job that are several steps: only every nth ends with the op that closes.

A *round* is a forward pass (several gathers in a row) and the scatters behind it. A step of several
rounds has microbatches, and the optimizer works behind the last of them only: the pause behind the
step is longer than those between its rounds. Where it is not, or where the latter have a period of
their own, it is several steps, and what closes the found ones is a log that is reduced every few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.model.ops import Op
from comminsight.model.step import StepSummary
from comminsight.semantics.pauses import MIN_Z, period_of, rank_z

LOOK_LIKE_SEVERAL = "steps_look_like_several"  # why a template is not taken
FORWARD_GATHERS = 3  # in a row: a backward pass has at most two, one of them ahead
_MIN_ROUNDS = 2  # in all: fewer have no pause between them
_LONGER = 0.005  # of a round: by less the optimizer of no job is done
_USUAL = 0.5  # of the steps have several rounds
_FEW = 4  # of so few pauses a rank test says nothing
_BY_FAR = 1.25  # times the longest of the others


def look_like_several(steps: Sequence[StepSummary], rows: np.ndarray) -> bool:
    """Whether most steps have several rounds, and no longer pause behind them than between them."""
    starts, scatters = _rounds(rows)
    if not len(steps) or len(starts) < _MIN_ROUNDS:
        return False
    start_ns = rows["start_ns"][starts]
    pauses_ns = _pauses_ns(rows, scatters, starts)
    firsts_ns = np.array([step.start_ns for step in steps], np.int64)
    spans_ns = np.array([step.span_ns for step in steps], np.int64)
    of_step = np.searchsorted(firsts_ns, start_ns, side="left") - 1
    is_end = np.isin(start_ns, firsts_ns)
    is_within = ~is_end & (of_step >= 0) & (start_ns < (firsts_ns + spans_ns)[of_step])
    n_within = np.bincount(of_step[is_within], minlength=len(steps))
    if (n_within > 0).mean() < _USUAL:
        return False
    least_ns = _LONGER * float(np.median(np.diff(start_ns)))
    n_rounds = period_of(pauses_ns.astype(np.float64), least_ns)
    if 0 < n_rounds <= np.median(n_within):
        return True
    return not _is_longer(pauses_ns[is_end], pauses_ns[is_within], least_ns)


def _rounds(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the first gather of each forward pass, and of the last scatter before it; none
    for what stands before the first scatter."""
    scatters = np.flatnonzero(rows["op"] == Op.REDUCE_SCATTER)
    gathers = np.flatnonzero(rows["op"] == Op.ALL_GATHER)
    of_gather = np.searchsorted(scatters, gathers)
    which, first, n_times = np.unique(of_gather, return_index=True, return_counts=True)
    is_told = (n_times >= FORWARD_GATHERS) & (which < len(scatters)) & (which > 0)
    return gathers[first[is_told]], scatters[which[is_told] - 1]


def _pauses_ns(rows: np.ndarray, before: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """The time between two ops without that of the ops between them."""
    over_ns = np.maximum.accumulate(np.maximum(rows["end_ns"], rows["start_ns"]))
    took_ns = np.maximum(rows["end_ns"] - rows["start_ns"], 0)
    until_ns = np.concatenate([[0], np.cumsum(took_ns)])
    pauses_ns: np.ndarray = rows["start_ns"][behind] - over_ns[before]
    pauses_ns -= until_ns[behind] - until_ns[before + 1]
    return pauses_ns


def _is_longer(own_ns: np.ndarray, others_ns: np.ndarray, least_ns: float) -> bool:
    if not len(own_ns) or not len(others_ns):
        return True  # nothing speaks against the steps
    if np.median(own_ns) < np.median(others_ns) + least_ns:
        return False
    if len(own_ns) < _FEW:
        return bool(own_ns.min() > _BY_FAR * others_ns.max() + least_ns)
    return rank_z(own_ns, others_ns) > MIN_Z or bool(own_ns.min() > others_ns.max())
