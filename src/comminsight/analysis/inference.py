"""What waited for what, and own work: read off all observations of the same place in a program.

See ``program`` for the model and for why an edge is inferred by never having been contradicted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.analysis.batches import ProgramClass, StepBatch, gather, scatter
from comminsight.analysis.program import MAX_LAG, UNKNOWN_NS


def infer(batches: Sequence[StepBatch], runs: ProgramClass) -> tuple[np.ndarray, np.ndarray]:
    """(work, transfer) of the class, ``(n_runs, n_ops)`` ns; also writes them and their edges.

    Both may be negative only where clocks of different nodes disagree.
    """
    start_ns, end_ns = gather(batches, runs, "start_ns"), gather(batches, runs, "end_ns")
    lags, base_ns = _waits(start_ns, end_ns, _entries(batches, runs))
    gate, gate_ns = _gates(batches, runs, start_ns, end_ns)
    for b, rows in runs.parts:
        batches[b].layout.wait_lags[rows] = lags
        batches[b].layout.gate[rows] = gate
    work_ns = np.subtract(start_ns, base_ns, out=base_ns)
    transfer_ns = np.subtract(end_ns, gate_ns, out=end_ns)
    scatter(batches, runs, "work_ns", work_ns)
    scatter(batches, runs, "transfer_ns", transfer_ns)
    return work_ns, transfer_ns


def _waits(
    start_ns: np.ndarray, end_ns: np.ndarray, entry_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bits of the ends waited for per place ``(n_ops,)``, and when each run was free for it."""
    n_ops = start_ns.shape[1]
    base_ns = np.empty_like(start_ns)
    base_ns[:, 0] = entry_ns
    base_ns[:, 1:] = start_ns[:, :-1]
    lags = np.zeros(n_ops, np.int64)
    for lag in range(1, min(MAX_LAG, n_ops - 1) + 1):
        waited = (end_ns[:, :-lag] <= start_ns[:, lag:]).all(axis=0)
        lags[lag:] |= waited.astype(np.int64) << (lag - 1)
        later = np.flatnonzero(waited)
        base_ns[:, later + lag] = np.maximum(base_ns[:, later + lag], end_ns[:, later])
    # an end that the previous op waited for is implied by the previous start
    lags[1:] &= ~(lags[:-1] << 1)
    return lags, base_ns


def _entries(batches: Sequence[StepBatch], runs: ProgramClass) -> np.ndarray:
    """When each run was free before its first op, ``(n_runs,)``."""
    parts = []
    for b, rows in runs.parts:
        ranks = batches[b].layout.rank[rows[:, 0]]
        parts.append(batches[b].entry_ns[:, ranks].ravel())
    return np.concatenate(parts)


def _gates(
    batches: Sequence[StepBatch], runs: ProgramClass, start_ns: np.ndarray, end_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gate kind per place and the gate's instant per run."""
    last_ns = gather(batches, runs, "last_start_ns")
    can_run_alone = [batches[b].layout.can_run_alone[rows].any(axis=0) for b, rows in runs.parts]
    waits_for_all = (last_ns <= end_ns).all(axis=0) | ~np.any(can_run_alone, axis=0)
    gate = np.where(waits_for_all, 2, 0)
    gate_ns = np.where(waits_for_all, last_ns, start_ns)
    if any(batches[b].has_roots for b, _ in runs.parts):
        root_ns = gather(batches, runs, "root_start_ns")
        follows_root = (root_ns != UNKNOWN_NS).all(axis=0) & ~waits_for_all
        gate[follows_root] = 1
        gate_ns = np.where(follows_root, np.maximum(start_ns, root_ns), gate_ns)
    return gate, gate_ns
