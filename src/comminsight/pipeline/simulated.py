"""Simulated runs as sessions, so that everything after the readers takes them like real ones."""

from __future__ import annotations

import numpy as np

from comminsight.capture.session import SessionData, capture_lost, unfinished_markers
from comminsight.format.layout import LOSS_REASONS
from comminsight.model.hang import Liveness
from comminsight.model.tally import Tally
from comminsight.sim.cluster import SimRank, SimRun


def simulated_sessions(run: SimRun) -> tuple[SessionData, ...]:
    """One session per rank, as if read back from its segments."""
    return tuple(simulated_session(rank, is_finished=run.is_finished) for rank in run.ranks)


def simulated_session(rank: SimRank, *, is_finished: bool) -> SessionData:
    """The rank's records in arrival order."""
    losses = np.zeros((1, LOSS_REASONS), np.int64)
    tally = Tally({"segment_records_read": len(rank.records), "capture_lost": capture_lost(losses)})
    seq = rank.records["seq"]
    gaps = int(seq.max(initial=0) - seq.min(initial=1) + 1 - len(seq)) if len(seq) else 0
    tally.add("seq_gaps", gaps)
    return SessionData(
        identity=rank.session,
        comms=rank.comms,
        records=rank.records,
        losses=losses,
        in_flight=unfinished_markers(rank.records, rank.comms),
        liveness=Liveness.CLOSED if is_finished else Liveness.UNKNOWN,
        tally=tally,
        settings={},
        clock_pairs=np.zeros((0, 2), np.int64),
        complete_from_seq=0 if gaps else 1,
    )
