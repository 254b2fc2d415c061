"""From sessions to the run as analysis takes it: finished ops, joined communicators, clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from comminsight.analysis.clock import estimate_clocks
from comminsight.capture.session import SessionData
from comminsight.model.ops import OpState, RecordKind
from comminsight.model.step import StepSummary
from comminsight.model.topology import Communicator
from comminsight.model.trace import RankTrace, RunTrace
from comminsight.semantics.communicators import join_communicators

FINISHED_STATES = (OpState.DONE, OpState.FAILED, OpState.ABORTED, OpState.UNOBSERVABLE)
OP_KINDS = (RecordKind.COLLECTIVE, RecordKind.P2P)


def finished_ops(records: np.ndarray) -> np.ndarray:
    """Ops that have ended, each once, sorted by (start_ns, seq); markers are left out."""
    is_op = np.isin(records["kind"], OP_KINDS) & np.isin(records["state"], FINISHED_STATES)
    ops = records[is_op & (records["start_ns"] > 0)]
    return ops[np.lexsort((ops["seq"], ops["start_ns"]))]


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
