"""From sessions to the run as analysis takes it: finished ops, joined communicators, clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from comminsight.analysis.clock import estimate_clocks
from comminsight.capture.session import SessionData
from comminsight.model.event import take_rows
from comminsight.model.ops import OpState
from comminsight.model.records import is_op
from comminsight.model.step import StepSummary
from comminsight.model.topology import Communicator
from comminsight.model.trace import RankTrace, RunTrace
from comminsight.semantics.communicators import join_communicators

FINISHED_STATES = (OpState.DONE, OpState.FAILED, OpState.ABORTED, OpState.UNOBSERVABLE)
_IS_FINISHED = np.isin(np.arange(256), FINISHED_STATES)


def is_finished(ops: np.ndarray) -> np.ndarray:
    """Which ops are over, as far as they are known to be; markers are not; ``(n,)`` bool."""
    mask: np.ndarray = _IS_FINISHED[ops["state"]]
    return mask


def finished_ops(records: np.ndarray) -> np.ndarray:
    """Ops that have ended, each once, sorted by (start_ns, seq); markers are left out."""
    rows = np.flatnonzero(is_op(records) & is_finished(records) & (records["start_ns"] > 0))
    start_ns, seq = records["start_ns"][rows], records["seq"][rows]
    if np.all(seq[1:] > seq[:-1]):  # as recorded: a stable sort keeps equal starts in this order
        order = np.argsort(start_ns, kind="stable")
    else:
        order = np.lexsort((seq, start_ns))
    return take_rows(records, rows[order])


def joined_communicators(
    sessions: Sequence[SessionData],
) -> tuple[tuple[Communicator, ...], dict[str, np.ndarray]]:
    """Communicators of the run, and per session the map from comm_index to comm_id."""
    return join_communicators([(s.identity, s.comms) for s in sessions])


def run_trace(
    sessions: Sequence[SessionData],
    steps: Mapping[str, tuple[StepSummary, ...]],
    world_size: int,
) -> RunTrace:
    """The run's trace with its nodes aligned by their collectives; one boot shares one clock."""
    communicators, comm_ids = joined_communicators(sessions)
    ranks = tuple(
        RankTrace(
            session=s.identity,
            ops=finished_ops(s.records),
            comm_ids=comm_ids[s.identity.session_id],
            unseen_calls=s.unseen_calls,
        )
        for s in sessions
    )
    return RunTrace(
        ranks=ranks,
        communicators=communicators,
        steps=dict(steps),
        clocks=estimate_clocks(ranks),
        world_size=world_size,
    )
