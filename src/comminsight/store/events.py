"""Records as Parquet: the shape of the archive and of notebooks.

Ops and their markers stand in ``events/``; network summaries, joined to them by ``session_id``,
``comm_index`` and ``op_seq``, in ``net/``; notices in ``notices/``. The last two exist where there
are any.

One file holds the ranks of one block of ``RANKS_PER_FILE``, sorted by rank and start, in row groups
of ``ROW_GROUP_ROWS``. Columns are the fields of the record by name, enumerations as text, and
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
from comminsight.format.document import read_document
from comminsight.model.event import NET_DTYPE, NOTICE_DTYPE, OP_DTYPE, take_rows
from comminsight.model.ops import (
    Algorithm,
    DType,
    NoticeReason,
    Op,
    OpState,
    Protocol,
    RecordKind,
    RedOp,
    TimingSource,
    WaitSide,
)
from comminsight.model.topology import SessionIdentity
from comminsight.store.archive import Archive

SCHEMA_VERSION = 1
RANKS_PER_FILE = 64
ROW_GROUP_ROWS = 65_536
MANIFEST = "manifest.json"
VERSION_KEY = b"comminsight.schema_version"

TEXT = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True)
class EventTable:
    """One kind of table: its rows are the records of ``kinds`` read as ``dtype``.

    ``enums`` are columns shown as text: (field, shift, enumeration), of which the lowest byte after
    the shift counts. ``growing`` are numbers that grow along the file: differences are small, and
    everything else repeats. Fields of neither that are in ``hidden`` are left out.
    """

    folder: str
    kinds: tuple[RecordKind, ...]
    dtype: np.dtype[Any]
    enums: dict[str, tuple[str, int, type[IntEnum]]]
    growing: tuple[str, ...]
    hidden: frozenset[str] = frozenset()

    @property
    def schema(self) -> pa.Schema:
        """Who wrote the row, then the record's columns."""
        fields = [
            pa.field("global_rank", pa.int32()),
            pa.field("session_id", TEXT),
            pa.field("comm_id", pa.int32()),
            pa.field("real_minus_mono_ns", pa.int64()),
        ]
        for name in dict.fromkeys([*(self.dtype.names or ()), *self.enums]):
            if name in self.enums:
                fields.append(pa.field(name, TEXT))
            elif name not in self.hidden:
                fields.append(pa.field(name, pa.from_numpy_dtype(self.dtype[name])))
        return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})

    def rows_of(self, records: np.ndarray) -> np.ndarray:
        """The records of this table, sorted by (start, seq)."""
        own = np.flatnonzero(np.isin(records["kind"], self.kinds))
        order = np.lexsort((records["seq"][own], records["start_ns"][own]))
        return take_rows(records, own[order]).view(self.dtype)

    def column(self, rows: np.ndarray, name: str) -> pa.Array:
        """One column of the record."""
        if name not in self.enums:
            return pa.array(np.ascontiguousarray(rows[name]))
        field, shift, names = self.enums[name]
        return _enum(rows[field] >> shift & 0xFF, names)


EVENTS = EventTable(
    folder="events",
    kinds=(RecordKind.UNKNOWN, RecordKind.COLLECTIVE, RecordKind.P2P, RecordKind.DRAIN),
    dtype=OP_DTYPE,
    enums={
        "kind": ("kind", 0, RecordKind),
        "op": ("op", 0, Op),
        "dtype": ("dtype", 0, DType),
        "red_op": ("red_op", 0, RedOp),
        "algo": ("algo", 0, Algorithm),
        "proto": ("proto", 0, Protocol),
        "state": ("state", 0, OpState),
        "timing_source": ("timing_source", 0, TimingSource),
    },
    growing=("seq", "enqueue_ns", "start_ns", "end_ns", "gpu_start_ns", "gpu_end_ns", "op_seq",
             "match_seq", "func_seq"),
    hidden=frozenset({"reserved", "seq_low"}),
)  # fmt: skip
NET = EventTable(
    folder="net",
    kinds=(RecordKind.NET,),
    dtype=NET_DTYPE,
    enums={
        "op": ("op", 0, Op),
        "state": ("state", 0, OpState),
        "send_wait": ("wait_side", 0, WaitSide),
        "receive_wait": ("wait_side", 8, WaitSide),
    },
    growing=("seq", "first_event_ns", "start_ns", "last_event_ns", "progress_ns", "op_seq",
             "match_seq"),
    hidden=frozenset({"kind", "wait_side", "seq_low"}),
)  # fmt: skip
NOTICES = EventTable(
    folder="notices",
    kinds=(RecordKind.NOTICE,),
    dtype=NOTICE_DTYPE,
    enums={"reason": ("reason", 0, NoticeReason)},
    growing=("seq", "start_ns"),
    hidden=frozenset({"kind", "state", "seq_low", "flags", "comm_index", "enqueue_ns", "end_ns"}),
)


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


def export_all(
    sessions: Sequence[SessionEvents], archive: Archive, prefix: str
) -> tuple[EventsEntry, ...]:
    """Writes the tables of all kinds of records; of those without a row only ``events``."""
    kinds = {int(kind) for s in sessions for kind in np.unique(s.records["kind"])}
    tables = [EVENTS, *(t for t in (NET, NOTICES) if kinds & set(map(int, t.kinds)))]
    return tuple(
        entry for table in tables for entry in export_events(sessions, archive, prefix, table)
    )


def export_events(
    sessions: Iterable[SessionEvents],
    archive: Archive,
    prefix: str,
    table: EventTable = EVENTS,
) -> tuple[EventsEntry, ...]:
    """Writes ``<prefix>/events/*.parquet`` (or of another table) and their manifest; the same input
    gives the same files.

    Sessions of an unknown rank go into a file of their own; an empty prefix (or ``.``) is the root.
    """
    blocks: dict[int, list[SessionEvents]] = {}
    for session in sessions:
        blocks.setdefault(session.identity.global_rank // RANKS_PER_FILE, []).append(session)
    entries = []
    for block in sorted(blocks):
        members = sorted(blocks[block], key=lambda s: (s.identity.global_rank, _first(s)))
        name = object_name(prefix, table.folder, f"{block_name(block)}.parquet")
        archive.put(name, parquet_bytes(members, table))
        entries.append(_entry(name, members, table))
    archive.put(
        object_name(prefix, table.folder, MANIFEST),
        msgspec.json.format(msgspec.json.encode(entries)),
    )
    return tuple(entries)


def read_manifest(
    archive: Archive, prefix: str, table: EventTable = EVENTS
) -> tuple[EventsEntry, ...]:
    """The files of an export; InputError where there is none."""
    name = object_name(prefix, table.folder, MANIFEST)
    return read_document(archive.get(name), tuple[EventsEntry, ...], path=name)


def read_events(paths: Sequence[Path | str], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of these files of one kind in their order, columns united by name (absent ones are
    null).

    Raises InputError for files that are no export or of a newer schema.
    """
    tables: list[pa.Table] = []
    for path in paths:
        try:
            version = pq.read_schema(path).metadata or {}
            table = pq.read_table(path, partitioning=None)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"is no readable Parquet file: {error}", path=str(path)) from error
        check_version(version.get(VERSION_KEY, b""), str(path))
        tables.append(_with_nullable(table, nullable=True))  # a file may lack a column
    joined = (
        pa.concat_tables(tables, promote_options="permissive")
        if tables
        else EVENTS.schema.empty_table()
    )
    return joined.select(list(columns)) if columns is not None else joined


def parquet_bytes(sessions: Sequence[SessionEvents], table: EventTable = EVENTS) -> bytes:
    """One Parquet file of these sessions, in the given order, each sorted by start."""
    sink = io.BytesIO()
    schema = table.schema
    stored = _with_nullable(schema.empty_table(), nullable=False).schema  # read in half the time
    dictionary = [name for name in schema.names if name not in table.growing]
    writer = pq.ParquetWriter(
        sink,
        stored,
        compression="zstd",
        compression_level=1,
        use_dictionary=dictionary,
        column_encoding=dict.fromkeys(table.growing, "DELTA_BINARY_PACKED"),
    )
    with writer:
        tables = (events_table(session, table) for session in sessions)
        for group in _row_groups(tables, schema):
            whole = _with_nullable(group, nullable=False)
            writer.write_table(whole, row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue()


def events_table(session: SessionEvents, table: EventTable = EVENTS) -> pa.Table:
    """The records of one session as columns, sorted by (start, seq)."""
    rows = table.rows_of(session.records)
    schema = table.schema
    identity = session.identity
    columns: list[Any] = [
        np.full(len(rows), identity.global_rank, np.int32),
        _constant(identity.session_id, len(rows)),
        _comm_ids(session.comm_ids, rows["comm_index"]),
        np.full(len(rows), identity.real_minus_mono_ns, np.int64),
    ]
    columns += [table.column(rows, name) for name in schema.names[len(columns) :]]
    arrays = [
        value if isinstance(value, pa.Array) else pa.array(value, field.type)
        for value, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _row_groups(tables: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of all tables in pieces of ``ROW_GROUP_ROWS``; only the last is smaller."""
    waiting = schema.empty_table()
    for table in tables:
        waiting = pa.concat_tables([waiting, table]).unify_dictionaries()
        n_full = waiting.num_rows // ROW_GROUP_ROWS * ROW_GROUP_ROWS
        if n_full:
            yield waiting.slice(0, n_full)
            waiting = waiting.slice(n_full)
    if waiting.num_rows:
        yield waiting


def _with_nullable(table: pa.Table, *, nullable: bool) -> pa.Table:
    """The same columns, of which each value may be absent or none is."""
    fields = [field.with_nullable(nullable) for field in table.schema]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields, table.schema.metadata))


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


def object_name(prefix: str, folder: str, file_name: str) -> str:
    """The name of a file of an export; an empty prefix (or ``.``) is the root."""
    name = f"{folder}/{file_name}"
    return name if prefix in {"", "."} else f"{prefix}/{name}"


def block_name(block: int) -> str:
    """The file name of a block of ranks, without its ending."""
    if block < 0:
        return "ranks-unknown"
    first = block * RANKS_PER_FILE
    return f"ranks-{first:06d}-{first + RANKS_PER_FILE - 1:06d}"


def _entry(name: str, sessions: Sequence[SessionEvents], table: EventTable) -> EventsEntry:
    own = [np.isin(session.records["kind"], table.kinds) for session in sessions]
    starts = np.concatenate(
        [s.records["start_ns"][rows] for s, rows in zip(sessions, own, strict=True)]
    )
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


def check_version(stated: bytes, path: str) -> None:
    """Raises InputError unless the file says that it is an export of this schema or an older."""
    if not stated.isdigit():
        raise InputError("is not an export of events", path=path)
    if int(stated) > SCHEMA_VERSION:
        message = f"has events schema {int(stated)}, newer than this version reads"
        raise InputError(message, path=path, next_step="install a newer comminsight")
