"""Who wrote the archived records: identity, settings and communicators of every session.

With the tables of ``events`` beside it, this is all that a rebuild of the steps needs. One JSON
file per block of ranks, ``sessions/ranks-….json``, named as the Parquet files are.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from comminsight.errors import FormatError, InputError
from comminsight.format.document import read_document
from comminsight.format.schema import Layout, dtype_of, upgrade_comms
from comminsight.model.event import COMM_FIELDS, COMM_ROW_BYTES
from comminsight.model.topology import SessionIdentity
from comminsight.store.archive import Archive
from comminsight.store.events import RANKS_PER_FILE, block_name, object_name

SCHEMA_VERSION = 1
FOLDER = "sessions"


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One session. ``comms`` are communicator rows of ``layout``; ``is_over``: it had ended."""

    identity: SessionIdentity
    settings: dict[str, int]
    is_over: bool
    comms: bytes
    layout: Layout


class SessionsFile(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of one block of ranks."""

    schema_version: int
    sessions: tuple[SessionEntry, ...]


def session_entry(
    identity: SessionIdentity, comms: np.ndarray, settings: dict[str, int], *, is_over: bool
) -> SessionEntry:
    """The entry of a session with these communicator rows (``COMM_DTYPE``)."""
    layout = Layout(COMM_ROW_BYTES, [(name, form, at) for name, form, at in COMM_FIELDS])
    return SessionEntry(
        identity=identity, settings=settings, is_over=is_over, comms=comms.tobytes(), layout=layout
    )


def comm_rows_of(entry: SessionEntry) -> np.ndarray:
    """The communicator rows (``COMM_DTYPE``); FormatError for rows that are not of their layout."""
    dtype = dtype_of(entry.layout, with_strings=True)
    if len(entry.comms) % dtype.itemsize:
        session_id = entry.identity.session_id
        raise FormatError(f"communicator rows of {session_id} are cut short", path=FOLDER)
    rows, _ = upgrade_comms(np.frombuffer(entry.comms, dtype))
    return rows


def export_sessions(
    entries: Iterable[SessionEntry], archive: Archive, prefix: str
) -> tuple[str, ...]:
    """Names of the files written; the same sessions give the same files."""
    blocks: dict[int, list[SessionEntry]] = {}
    for entry in entries:
        blocks.setdefault(entry.identity.global_rank // RANKS_PER_FILE, []).append(entry)
    names = []
    for block in sorted(blocks):
        own = sorted(blocks[block], key=lambda e: (e.identity.global_rank, e.identity.session_id))
        file = SessionsFile(schema_version=SCHEMA_VERSION, sessions=tuple(own))
        names.append(object_name(prefix, FOLDER, f"{block_name(block)}.json"))
        archive.put(names[-1], msgspec.json.encode(file))
    return tuple(names)


def read_sessions(archive: Archive, name: str) -> tuple[SessionEntry, ...]:
    """The sessions of one file. Raises InputError for anything but such a file of this version."""
    file = read_document(archive.get(name), SessionsFile, path=name)
    if file.schema_version > SCHEMA_VERSION:
        message = f"has schema {file.schema_version}, newer than this version reads"
        raise InputError(message, path=name, next_step="install a newer comminsight")
    return file.sessions
