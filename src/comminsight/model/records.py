"""What the records of a batch are: ops and what they stand for, network summaries, notices.

A record is 128 bytes of one layout for all kinds; NET and NOTICE records are read by names of their
own (``NET_DTYPE``, ``NOTICE_DTYPE``). They are no ops: they are never late, matched or lost as one.
"""

from __future__ import annotations

import numpy as np

from comminsight.model.event import NET_DTYPE, NOTICE_DTYPE, take_rows
from comminsight.model.ops import NoticeReason, OpFlag, OpState, RecordKind

_OPEN_STATES = (OpState.OPEN, OpState.OVERDUE)
_IS_OP = np.isin(np.arange(256), (RecordKind.COLLECTIVE, RecordKind.P2P))
_IS_MARKER = np.isin(np.arange(256), _OPEN_STATES)


def is_op(rows: np.ndarray) -> np.ndarray:
    """Which rows (``OP_DTYPE``) speak of an op, markers included; ``(n,)`` bool."""
    mask: np.ndarray = _IS_OP[rows["kind"]]
    return mask


def is_ended_op(rows: np.ndarray) -> np.ndarray:
    """Which rows are the end of an op, whatever became of it; ``(n,)`` bool."""
    mask: np.ndarray = is_op(rows) & ~_IS_MARKER[rows["state"]]
    return mask


def is_fold(rows: np.ndarray) -> np.ndarray:
    """Which rows stand for several P2P calls of one group call; ``(n,)`` bool.

    A coalesced collective is one op on several tensors, not a fold.
    """
    mask: np.ndarray = (rows["kind"] == RecordKind.P2P) & (rows["n_folded"] > 1)
    return mask


def is_peerless(rows: np.ndarray) -> np.ndarray:
    """Which rows are P2P without one known partner: folds, and calls whose peer was not seen."""
    mask: np.ndarray = (rows["kind"] == RecordKind.P2P) & (
        (rows["peer_or_root"] < 0) | (rows["n_folded"] > 1)
    )
    return mask


def is_replay(rows: np.ndarray) -> np.ndarray:
    """Which rows are of ops that a captured graph replayed: they are numbered apart from the calls
    of the program (``match_seq``), since the order in which the two are told differs from rank to
    rank; ``(n,)`` bool."""
    mask: np.ndarray = (rows["flags"] & OpFlag.GRAPH) != 0
    return mask


def n_calls(rows: np.ndarray) -> np.ndarray:
    """How many ops each row stands for, ``(n,)`` int64; 0 for rows that are no end of an op."""
    calls: np.ndarray = np.where(is_fold(rows), rows["n_folded"].astype(np.int64), 1)
    calls[~is_ended_op(rows)] = 0
    return calls


def is_untimed(rows: np.ndarray) -> np.ndarray:
    """Which rows are ops of which only the call was seen: neither when they ran nor their end is
    known, ``start_ns`` is when they were enqueued; ``(n,)`` bool."""
    mask: np.ndarray = is_op(rows) & (rows["state"] == OpState.UNOBSERVABLE) & (rows["reason"] > 0)
    return mask


def net_summaries(rows: np.ndarray) -> np.ndarray:
    """The network summaries among ``rows`` as ``NET_DTYPE``; joined to ops by ``comm_index`` and
    ``op_seq``."""
    return take_rows(rows, np.flatnonzero(rows["kind"] == RecordKind.NET)).view(NET_DTYPE)


def notices(rows: np.ndarray) -> np.ndarray:
    """The notices among ``rows`` as ``NOTICE_DTYPE``."""
    return take_rows(rows, np.flatnonzero(rows["kind"] == RecordKind.NOTICE)).view(NOTICE_DTYPE)


def is_change(rows: np.ndarray) -> np.ndarray:
    """Which rows tell that something else is recorded from now on; counters change nothing."""
    mask: np.ndarray = (rows["kind"] == RecordKind.NOTICE) & (
        rows["reason"] != NoticeReason.COUNTERS
    )
    return mask
