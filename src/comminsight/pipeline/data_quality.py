"""The quality of a run's own records, from its sessions, judged beside its verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from comminsight.analysis.record_quality import (
    RankRecords,
    end_drifts,
    ends_before_entries,
    rank_records,
)
from comminsight.capture.session import SessionData
from comminsight.diagnosis.miscounts import miscounts_in
from comminsight.diagnosis.recorded_data import RecordFaults, with_data_verdicts
from comminsight.model.hang import Liveness
from comminsight.model.tally import NOT_READ
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Coverage, Verdict
from comminsight.pipeline.pauses import n_switched_off


def with_data(
    verdicts: Sequence[Verdict],
    sessions: Sequence[SessionData],
    trace: RunTrace,
    coverage: Coverage,
) -> tuple[Verdict, ...]:
    """The verdicts with those on the records themselves; see ``diagnosis.recorded_data``."""
    miscounted = list(miscounts_in(trace))
    faults = RecordFaults(
        ranks=tuple(session_records(session) for session in sessions),
        before_entry=tuple(ends_before_entries(trace, miscounted)),
        drifts=tuple(end_drifts(trace, miscounted)),
        is_over=all(session.liveness is not Liveness.ALIVE for session in sessions),
    )
    return with_data_verdicts(verdicts, faults, coverage)


def session_records(session: SessionData) -> RankRecords:
    """The facts of one session with what its recorder and its reader counted."""
    tally = session.tally
    return replace(
        rank_records(session.identity.global_rank, session.records),
        n_lost=tally.sum_of(NOT_READ),
        n_overwritten=tally["ring_records_overwritten"],
        n_filtered=n_switched_off(session),
        n_bad_frames=tally["segment_frames_bad"],
        n_bad_records=tally["segment_records_bad"],
        n_unread_files=tally["segment_files_unreadable"],
    )
