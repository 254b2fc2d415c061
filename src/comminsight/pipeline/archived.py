"""The run that exported tables hold: its metadata, and the records that roles are told from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from comminsight.capture.session import SessionData, unfinished_markers
from comminsight.format.layout import LOSS_REASONS
from comminsight.model.event import OP_DTYPE, concatenate_rows, empty_batch
from comminsight.model.hang import Liveness
from comminsight.model.metadata import RunMetadata
from comminsight.model.tally import Tally
from comminsight.pipeline.metadata import all_versions
from comminsight.store.archive import Archive
from comminsight.store.events import EVENTS
from comminsight.store.metadata import archive_metadata, read_archived_metadata
from comminsight.store.replay import EventsFile, session_batches
from comminsight.store.sessions import FOLDER, SessionEntry, comm_rows_of, read_sessions

_FIELDS = tuple(OP_DTYPE.names or ())
_NOBODY_KNOWS_WHEN = 0  # what the recorders passed over is not in the tables


def archived_sessions(root: Path) -> tuple[SessionData, ...]:
    """Every session of the tables with its ops: enough for roles and metadata, not for verdicts,
    since neither notices nor losses are read. Raises InputError when one does not read."""
    archive = Archive.local(root)
    found = []
    for path in sorted((root / FOLDER).glob("*.json")):
        entries = read_sessions(archive, f"{FOLDER}/{path.name}")
        table = archive.path_of(f"{EVENTS.folder}/{path.stem}.parquet")
        events = EventsFile(table, EVENTS, _FIELDS)
        found += [_session(entry, events) for entry in entries]
    return tuple(found)


def write_archived_metadata(root: Path, document: RunMetadata) -> Path:
    """Put the document into the tables' ``metadata/``; its path. Versions that only an earlier one
    knows, such as those of the launcher, are kept. Raises InputError when it cannot be written."""
    archive = Archive.local(root)
    earlier = read_archived_metadata(archive, "")
    versions = _united([document, *([earlier] if earlier else [])])
    kept = msgspec.structs.replace(document, versions=versions)
    return archive.path_of(archive_metadata(archive, "", kept))


def _united(documents: Iterable[RunMetadata]) -> dict[str, tuple[str, ...]]:
    return all_versions(
        {component: version}
        for document in documents
        for component, versions in document.versions.items()
        for version in versions
    )


def _session(entry: SessionEntry, events: EventsFile) -> SessionData:
    batches = session_batches([events], entry.identity.session_id)
    records = concatenate_rows([empty_batch(), *(rows.copy() for rows in batches)])
    comms = comm_rows_of(entry)
    return SessionData(
        identity=entry.identity, comms=comms, records=records,
        losses=np.zeros((1, LOSS_REASONS), np.int64),
        in_flight=unfinished_markers(records, comms),
        liveness=Liveness.CLOSED if entry.is_over else Liveness.UNKNOWN, tally=Tally(),
        settings=entry.settings, clock_pairs=np.zeros((0, 2), np.int64),
        complete_from_seq=_NOBODY_KNOWS_WHEN,
    )  # fmt: skip
