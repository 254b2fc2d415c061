"""The events of a run for other tools: Parquet tables, NCCL Inspector JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from comminsight.capture.session import SessionData
from comminsight.errors import InputError
from comminsight.format.inspector import InspectorLines
from comminsight.model.hang import Liveness
from comminsight.model.metadata import RunMetadata
from comminsight.model.trace import RunTrace
from comminsight.store.archive import Archive
from comminsight.store.events import SessionEvents, export_all
from comminsight.store.metadata import archive_metadata
from comminsight.store.sessions import export_sessions, session_entry


@dataclass(frozen=True, slots=True)
class Exported:
    """Files written, and ops that have no form there, by reason."""

    paths: tuple[Path, ...]
    skipped: Counter[str] = field(default_factory=Counter)


def export_parquet(
    sessions: Sequence[SessionData], trace: RunTrace, target: Path,
    metadata: RunMetadata | None = None,
) -> Exported:  # fmt: skip
    """Parquet files of every record with their manifests: ops and markers, network summaries,
    notices; and who wrote them, with the ``metadata`` of the run."""
    archive = Archive.local(target)
    comm_ids = {rank.session.session_id: rank.comm_ids for rank in trace.ranks}
    events = [
        SessionEvents(s.identity, s.records, comm_ids[s.identity.session_id]) for s in sessions
    ]
    entries = export_all(events, archive, "")
    heads = [
        session_entry(s.identity, s.comms, s.settings, is_over=s.liveness is not Liveness.ALIVE)
        for s in sessions
    ]
    export_sessions(heads, archive, "")
    if metadata is not None:
        archive_metadata(archive, "", metadata)
    return Exported(tuple(archive.path_of(entry.name) for entry in entries))


def export_inspector(sessions: Sequence[SessionData], _: RunTrace, target: Path) -> Exported:
    """One file of JSON lines per session, as the Inspector plugin names them.

    Raises InputError when the folder cannot be written.
    """
    paths, skipped = [], Counter[str]()
    try:
        target.mkdir(parents=True, exist_ok=True)
        for session in sessions:
            lines = InspectorLines(session.identity, session.comms, session.records)
            path = target / f"{session.identity.host}-pid{session.identity.pid}.log"
            with path.open("wb") as file:
                file.writelines(line + b"\n" for line in lines)
            paths.append(path)
            skipped += lines.skipped
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", path=str(target), next_step="give another --out"
        ) from error
    return Exported(tuple(paths), skipped)
