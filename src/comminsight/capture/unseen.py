"""Calls that NCCL made and told no recorder of: while its plugin was switched off by another tool.

NCCL counts its collectives per communicator and function (``func_seq``, from 0) whether or not the
plugin is told. A number that no record carries is a call nobody saw, unless one of the same
communicator was passed over on purpose, or was seen without its task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.capture.standing import has_task, is_of_nccl
from comminsight.model.ops import RecordKind
from comminsight.model.records import is_op

OF_RECORD = ("comm_index", "op_seq", "func_seq", "n_folded", "kind", "op")
CALL_DTYPE = np.dtype(
    [
        ("comm_index", "<u4"), ("op_seq", "<u4"), ("func_seq", "<u4"), ("n_folded", "<u2"),
        ("kind", "u1"), ("op", "u1"), ("has_task", "?"),
    ]
)  # fmt: skip


def unseen_calls(records: np.ndarray, in_flight: np.ndarray, comms: np.ndarray) -> dict[int, int]:
    """Unseen collectives by ``comm_index``, those with any; at least so many.

    ``records`` are whole (OP_DTYPE, nothing lost), ``in_flight`` the records of ops without an end.
    A call after the last one that was seen cannot be told from none.
    """
    return unseen_of([nccl_calls(rows, comms) for rows in (records, in_flight)])


def nccl_calls(records: np.ndarray, comms: np.ndarray) -> np.ndarray:
    """``CALL_DTYPE`` rows: what the records (``OP_DTYPE``) tell of NCCL's numbers, an eighth of
    their size."""
    rows = np.flatnonzero(is_of_nccl(records, comms) & is_op(records))
    calls = np.empty(len(rows), CALL_DTYPE)
    for name in OF_RECORD:
        calls[name] = records[name][rows]
    calls["has_task"] = has_task(records)[rows]
    return calls


def unseen_of(parts: Sequence[np.ndarray]) -> dict[int, int]:
    """``unseen_calls`` of all calls (``CALL_DTYPE``) of a session, in any order."""
    calls = np.concatenate([np.empty(0, CALL_DTYPE), *parts])
    found: dict[int, int] = {}
    for index in np.unique(calls["comm_index"]).tolist():
        own = calls[calls["comm_index"] == index]
        if (n := _missing_numbers(own) - _explained(own)) > 0:
            found[index] = n
    return found


def _missing_numbers(own: np.ndarray) -> int:
    tasked = own[(own["kind"] == RecordKind.COLLECTIVE) & own["has_task"]]
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
    is_tasked = np.isin(seqs, own["op_seq"][own["has_task"]])
    return max(0, int(seqs[-1]) - n_covered) + int((~is_tasked).sum())
