"""Collectives of one communicator run one after another: the second begins when the first is over.

Ops that overlap with computing queue behind each other, so an op takes its own time only from when
its last member has come *and* was done with the op before. Without this a step with its delays
taken away would let all buckets of gradients move at once. It is held for true where no op of the
communicator was over sooner after the one before it than it usually is.
"""

from __future__ import annotations

import numpy as np

from comminsight.analysis.batches import StepBatch
from comminsight.analysis.program import StepProgram

MIN_USUAL_RATIO = 0.2  # of the usual time after the op before; less means that both ran at once


def queue_up(batch: StepBatch, link: np.ndarray, is_queueing: np.ndarray) -> np.ndarray:
    """``before (n_ops,)``: the op of the same communicator and rank that each op queues behind,
    ``n_ops`` for none. Takes the time in the queue off the batch's transfers."""
    layout, n_ops = batch.layout, len(batch.layout.rank)
    before = _op_before(layout, link, is_queueing & (layout.gate == 2))
    has_before = np.flatnonzero(before < n_ops)
    if not len(has_before):
        return before
    ready_ns = batch.last_start_ns.copy()
    ready_ns[:, has_before] = np.maximum(
        ready_ns[:, has_before], batch.end_ns[:, before[has_before]]
    )
    ready_ns = _latest(ready_ns, layout.instance)
    transfer_ns = batch.end_ns - ready_ns
    usual_ns = np.median(transfer_ns, axis=0)
    is_queued = ready_ns > batch.last_start_ns
    is_contradicted = (is_queued & (transfer_ns < MIN_USUAL_RATIO * usual_ns)).any(axis=0)
    is_out = np.isin(link, np.unique(link[is_contradicted])) | layout.has_opaque_transfer
    before[is_out] = n_ops
    holds = (~is_out) & is_queueing & (layout.gate == 2)
    batch.transfer_ns[:, holds] = transfer_ns[:, holds]
    return before


def _op_before(layout: StepProgram, link: np.ndarray, in_queue: np.ndarray) -> np.ndarray:
    rows = np.flatnonzero(in_queue)
    rows = rows[np.lexsort((rows, link[rows], layout.rank[rows]))]
    before = np.full(len(layout.rank), len(layout.rank))
    same = (layout.rank[rows[1:]] == layout.rank[rows[:-1]]) & (link[rows[1:]] == link[rows[:-1]])
    before[rows[1:][same]] = rows[:-1][same]
    return before


def _latest(values: np.ndarray, instance: np.ndarray) -> np.ndarray:
    """The largest value of each instance, for all its rows."""
    order = np.argsort(instance, kind="stable")
    first = np.flatnonzero(np.diff(instance[order], prepend=-1))
    largest = np.maximum.reduceat(values[:, order], first, axis=1)
    _, of_row = np.unique(instance, return_inverse=True)
    latest: np.ndarray = largest[:, of_row]
    return latest
