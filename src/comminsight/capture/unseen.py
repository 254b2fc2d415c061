"""Calls that NCCL made and told no recorder of: while its plugin was switched off by another tool.

NCCL counts its collectives per communicator and function (``func_seq``, from 0) whether or not the
plugin is told. A number that no record carries is a call nobody saw, unless one of the same
communicator was passed over on purpose, or was seen without its task.
"""

from __future__ import annotations

import numpy as np

from comminsight.capture.standing import is_of_nccl
from comminsight.model.event import concatenate_rows, take_rows
from comminsight.model.ops import RecordKind
from comminsight.model.records import is_op


def unseen_calls(records: np.ndarray, in_flight: np.ndarray, comms: np.ndarray) -> dict[int, int]:
    """Unseen collectives by ``comm_index``, those with any; at least so many.

    ``records`` are whole (OP_DTYPE, nothing lost), ``in_flight`` the records of ops without an end.
    A call after the last one that was seen cannot be told from none.
    """
    is_wanted = is_of_nccl(records, comms) & is_op(records)
    if not is_wanted.any():
        return {}
    ops = concatenate_rows([take_rows(records, np.flatnonzero(is_wanted)), in_flight])
    ops = ops[is_of_nccl(ops, comms)]
    found: dict[int, int] = {}
    for index in np.unique(ops["comm_index"]).tolist():
        own = ops[ops["comm_index"] == index]
        if n := _missing_numbers(own) - _explained(own):
            found[index] = max(0, n)
    return {index: n for index, n in found.items() if n}


def _missing_numbers(own: np.ndarray) -> int:
    tasked = own[(own["kind"] == RecordKind.COLLECTIVE) & _has_task(own)]
    missing = 0
    for op in np.unique(tasked["op"]).tolist():
        numbers = np.unique(tasked["func_seq"][tasked["op"] == op])
        missing += int(numbers[-1]) + 1 - len(numbers)
    return missing


def _explained(own: np.ndarray) -> int:
    """Calls that were numbered and not recorded, and recorded ones whose number was not seen."""
    seqs, first = np.unique(own["op_seq"], return_index=True)
    rows = own[first]
    n_covered = int(np.maximum(rows["n_folded"].astype(np.int64), 1).sum())
    is_tasked = np.isin(seqs, own["op_seq"][_has_task(own)])
    return max(0, int(seqs[-1]) - n_covered) + int((~is_tasked).sum())


def _has_task(rows: np.ndarray) -> np.ndarray:
    mask: np.ndarray = (rows["n_channels"] > 0) | (rows["channels_started"] > 0)
    return mask
