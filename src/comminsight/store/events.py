"""Records as Parquet: the shape of the archive and of notebooks.

One file holds the ranks of one block of ``RANKS_PER_FILE``, sorted by rank and start, in row groups
of ``ROW_GROUP_ROWS``. Columns are the fields of the op record by name, enumerations as text, and
who wrote them. Times are the session's CLOCK_MONOTONIC; adding ``real_minus_mono_ns`` gives wall
time. Files of different schema versions are read together by column name.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from comminsight.errors import InputError
from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import (
    Algorithm,
    DType,
    Op,
    OpState,
    Protocol,
    RecordKind,
    RedOp,
    TimingSource,
)
from comminsight.model.topology import SessionIdentity
from comminsight.store.archive import Archive

SCHEMA_VERSION = 1
RANKS_PER_FILE = 64
ROW_GROUP_ROWS = 65_536
MANIFEST = "manifest.json"
VERSION_KEY = b"comminsight.schema_version"

ENUM_COLUMNS: dict[str, type[IntEnum]] = {
    "kind": RecordKind,
    "op": Op,
    "dtype": DType,
    "red_op": RedOp,
    "algo": Algorithm,
    "proto": Protocol,
    "state": OpState,
    "timing_source": TimingSource,
}
NOT_EXPORTED = frozenset({"reserved", "seq_low"})
# numbers that grow along the file: differences are small; everything else repeats
GROWING = (
    "seq", "enqueue_ns", "start_ns", "end_ns", "gpu_start_ns", "gpu_end_ns", "op_seq", "match_seq",
    "func_seq",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SessionEvents:
    """The records of one session (OP_DTYPE, any order); ``comm_ids[comm_index]`` is the run's
    ``comm_id``, -1 (as beyond its end) where it is not known."""

    identity: SessionIdentity
    records: np.ndarray
    comm_ids: np.ndarray


class EventsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file of the export."""

    name: str
    ranks: tuple[int, ...]
    n_rows: int
    first_start_ns: int
    last_start_ns: int


def _schema() -> pa.Schema:
    text = pa.dictionary(pa.int32(), pa.string())
    fields = [
        pa.field("global_rank", pa.int32()),
        pa.field("session_id", text),
        pa.field("comm_id", pa.int32()),
        pa.field("real_minus_mono_ns", pa.int64()),
    ]
    for name in OP_DTYPE.names or ():
        if name not in NOT_EXPORTED:
            kind = text if name in ENUM_COLUMNS else pa.from_numpy_dtype(OP_DTYPE[name])
            fields.append(pa.field(name, kind))
    return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})


SCHEMA = _schema()


def export_events(
    sessions: Iterable[SessionEvents], archive: Archive, prefix: str
) -> tuple[EventsEntry, ...]:
    """Writes ``<prefix>/events/*.parquet`` and their manifest; the same input gives the same files.

    Sessions of an unknown rank go into a file of their own; an empty prefix (or ``.``) is the root.
    """
    blocks: dict[int, list[SessionEvents]] = {}
    for session in sessions:
        blocks.setdefault(session.identity.global_rank // RANKS_PER_FILE, []).append(session)
    entries = []
    for block in sorted(blocks):
        members = sorted(blocks[block], key=lambda s: (s.identity.global_rank, _first(s)))
        name = _name(prefix, _file_name(block))
        archive.put(name, parquet_bytes(members))
        entries.append(_entry(name, members))
    archive.put(_name(prefix, MANIFEST), msgspec.json.format(msgspec.json.encode(entries)))
    return tuple(entries)


def read_manifest(archive: Archive, prefix: str) -> tuple[EventsEntry, ...]:
    """The files of an export; InputError where there is none."""
    name = _name(prefix, MANIFEST)
    try:
        return msgspec.json.decode(archive.get(name), type=tuple[EventsEntry, ...])
    except msgspec.MsgspecError as error:
        raise InputError(f"does not read: {error}", path=name) from error


def read_events(paths: Sequence[Path | str], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of these files in their order, columns united by name (absent ones are null).

    Raises InputError for files that are no export or of a newer schema.
    """
    tables = []
    for path in paths:
        try:
            version = pq.read_schema(path).metadata or {}
            table = pq.read_table(path, partitioning=None)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"is no readable Parquet file: {error}", path=str(path)) from error
        _check_version(version.get(VERSION_KEY, b""), str(path))
        tables.append(table)
    joined = (
        pa.concat_tables(tables, promote_options="permissive") if tables else SCHEMA.empty_table()
    )
    return joined.select(list(columns)) if columns is not None else joined


def parquet_bytes(sessions: Sequence[SessionEvents]) -> bytes:
    """One Parquet file of these sessions, in the given order, each sorted by start."""
    sink = io.BytesIO()
    dictionary = [name for name in SCHEMA.names if name not in GROWING]
    writer = pq.ParquetWriter(
        sink,
        SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=dictionary,
        column_encoding=dict.fromkeys(GROWING, "DELTA_BINARY_PACKED"),
    )
    with writer:
        for group in _row_groups(events_table(session) for session in sessions):
            writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue()


def events_table(session: SessionEvents) -> pa.Table:
    """The records of one session as columns, sorted by (start, seq)."""
    order = np.lexsort((session.records["seq"], session.records["start_ns"]))
    rows = session.records[order]
    identity = session.identity
    columns: list[Any] = [
        np.full(len(rows), identity.global_rank, np.int32),
        _constant(identity.session_id, len(rows)),
        _comm_ids(session.comm_ids, rows["comm_index"]),
        np.full(len(rows), identity.created_real_ns - identity.created_mono_ns, np.int64),
    ]
    for name in SCHEMA.names[len(columns) :]:
        column = np.ascontiguousarray(rows[name])
        columns.append(_enum(column, ENUM_COLUMNS[name]) if name in ENUM_COLUMNS else column)
    arrays = [
        value if isinstance(value, pa.Array) else pa.array(value, field.type)
        for value, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The rows of all tables in pieces of ``ROW_GROUP_ROWS``; only the last is smaller."""
    waiting = SCHEMA.empty_table()
    for table in tables:
        waiting = pa.concat_tables([waiting, table]).unify_dictionaries()
        n_full = waiting.num_rows // ROW_GROUP_ROWS * ROW_GROUP_ROWS
        if n_full:
            yield waiting.slice(0, n_full)
            waiting = waiting.slice(n_full)
    if waiting.num_rows:
        yield waiting


def _constant(text: str, n_rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(n_rows, np.int32), pa.array([text]))


def _enum(codes: np.ndarray, names: type[IntEnum]) -> pa.Array:
    """The names of ``codes``; codes of a newer version are UNKNOWN."""
    words = pa.array([member.name for member in names])
    known = np.where(codes < len(names), codes, 0).astype(np.int32)
    return pa.DictionaryArray.from_arrays(known, words)


def _comm_ids(comm_ids: np.ndarray, comm_index: np.ndarray) -> np.ndarray:
    table = np.append(comm_ids, -1).astype(np.int32)
    found: np.ndarray = table[np.minimum(comm_index, len(comm_ids))]
    return found


def _name(prefix: str, file_name: str) -> str:
    return f"events/{file_name}" if prefix in {"", "."} else f"{prefix}/events/{file_name}"


def _file_name(block: int) -> str:
    if block < 0:
        return "ranks-unknown.parquet"
    first = block * RANKS_PER_FILE
    return f"ranks-{first:06d}-{first + RANKS_PER_FILE - 1:06d}.parquet"


def _entry(name: str, sessions: Sequence[SessionEvents]) -> EventsEntry:
    starts = np.concatenate([session.records["start_ns"] for session in sessions])
    return EventsEntry(
        name=name,
        ranks=tuple(sorted({session.identity.global_rank for session in sessions})),
        n_rows=len(starts),
        first_start_ns=int(starts.min(initial=np.iinfo(np.int64).max)) if len(starts) else 0,
        last_start_ns=int(starts.max(initial=0)),
    )


def _first(session: SessionEvents) -> tuple[int, str]:
    starts = session.records["start_ns"]
    return (int(starts.min()) if len(starts) else 0), session.identity.session_id


def _check_version(stated: bytes, path: str) -> None:
    if not stated.isdigit():
        raise InputError("is not an export of events", path=path)
    if int(stated) > SCHEMA_VERSION:
        message = f"has events schema {int(stated)}, newer than this version reads"
        raise InputError(message, path=path, next_step="install a newer comminsight")
