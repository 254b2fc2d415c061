"""Work of a pipeline stage beyond the other stages.

Stages run different programs, so their ops have no counterparts; what is compared is the whole work
of a step. A stage that becomes like its peers keeps the shape of its work and shrinks it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.analysis.batches import StepBatch
from comminsight.analysis.whatif_excess import beyond_totals, lower_median


def stages_beyond(
    batches: Sequence[StepBatch], idle_ns: Sequence[np.ndarray], stage_of_rank: np.ndarray
) -> list[np.ndarray]:
    """What goes of the work, ``[batch] (3, n_steps, n_ops)``; nothing without several stages.
    ``idle_ns[batch] (n_steps, n_ops)`` is no work for sure and is not compared."""
    work = [
        np.maximum(batch.work_ns - idle, 0) for batch, idle in zip(batches, idle_ns, strict=True)
    ]
    totals = [_rank_totals(batch, own) for batch, own in zip(batches, work, strict=True)]
    n_stages = int(stage_of_rank.max(initial=0)) + 1
    if n_stages < 2 or not totals:
        return [np.zeros((3, *batch.work_ns.shape)) for batch in batches]
    rank_ns = np.concatenate(totals)
    members = [np.flatnonzero(stage_of_rank == stage) for stage in range(n_stages)]
    stage_ns = np.stack([lower_median(rank_ns[:, own], axis=1) for own in members], axis=1)
    goes = np.stack(beyond_totals(stage_ns).levels())
    ratio = np.minimum(goes / np.maximum(stage_ns, 1), 1)
    removed, begin = [], 0
    for batch, total, worked in zip(batches, totals, work, strict=True):
        own = ratio[:, begin : begin + len(total)][:, :, stage_of_rank[batch.layout.rank]]
        removed.append(own * worked)
        begin += len(total)
    return removed


def _rank_totals(batch: StepBatch, work_ns: np.ndarray) -> np.ndarray:
    """Sums of work, ``(n_steps, n_ranks)``."""
    bounds = batch.layout.bounds
    total = np.zeros((work_ns.shape[0], work_ns.shape[1] + 1))
    np.cumsum(work_ns, axis=1, out=total[:, 1:])
    sums: np.ndarray = total[:, bounds[1:]] - total[:, bounds[:-1]]
    return sums
