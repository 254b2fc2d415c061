"""The events of a run for other tools: Parquet tables, NCCL Inspector JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from comminsight.capture.session import SessionData
from comminsight.model.trace import RunTrace
from comminsight.store.archive import Archive
from comminsight.store.events import SessionEvents, export_events


def export_parquet(sessions: Sequence[SessionData], trace: RunTrace, target: Path) -> list[Path]:
    """Parquet files of every record, markers included, and their manifest; the paths written."""
    archive = Archive.local(target)
    comm_ids = {rank.session.session_id: rank.comm_ids for rank in trace.ranks}
    events = [
        SessionEvents(s.identity, s.records, comm_ids[s.identity.session_id]) for s in sessions
    ]
    entries = export_events(events, archive, ".")
    return [archive.path_of(entry.name) for entry in entries]
