"""Archived records in the order in which they arrived, with bounded memory.

The Parquet files of ``events`` are sorted by rank and start; the engine wants ``seq``. A session's
rows lie in *pieces* (its part of a row group), and the least ``seq`` of every piece is known from
the statistics before it is read. Pieces are read by their least ``seq``: whatever lies below that
of the next piece is complete and may go. Memory holds the pieces that overlap in ``seq``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from comminsight.errors import InputError
from comminsight.model.event import (
    OP_DTYPE,
    OP_FIELDS,
    OP_RECORD_BYTES,
    concatenate_rows,
    empty_batch,
    take_rows,
)
from comminsight.model.ops import RecordKind
from comminsight.store.events import EVENTS, NET, NOTICES, VERSION_KEY, EventTable, check_version

# What semantics looks at. The rest stays in the file: it costs time and decides nothing.
FIELDS = (
    "seq", "enqueue_ns", "start_ns", "end_ns", "count", "size_bytes", "comm_index", "peer_or_root",
    "op_seq", "match_seq", "func_seq", "flags", "kind", "op", "dtype", "state",
)  # fmt: skip
_OF_TABLE = {
    EVENTS.folder: FIELDS,
    NET.folder: ("seq",),
    NOTICES.folder: ("seq", "start_ns", "reason"),
}
_BATCH_ROWS = 16_384  # the engine takes portions of this size
_BLOCK_ROWS = 2_048  # words are written into so many records at a time: they fit the cache
_WORD_BYTES = 8
_N_WORDS = OP_RECORD_BYTES // _WORD_BYTES
_OFFSETS = {name: offset for name, _, offset in OP_FIELDS}
_SEQ_WORD = _OFFSETS["seq"] // _WORD_BYTES
_NO_SEQ = np.iinfo(np.int64).max
_KIND = {NET.folder: RecordKind.NET, NOTICES.folder: RecordKind.NOTICE}


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``[first, last)`` of a row group: one session's, none with a smaller ``seq``."""

    group: int
    first: int
    last: int
    min_seq: int


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """A row group as the words of its records: ``base`` is what is equal in all rows (one record),
    ``words`` are the others, by their place in the record."""

    number: int
    base: np.ndarray
    words: dict[int, np.ndarray]


class EventsFile:
    """One Parquet file of an export; ``pieces[session_id]`` are its sessions' parts.

    Raises InputError for a file that is no export or of a newer schema.
    """

    def __init__(
        self, path: Path | str, table: EventTable = EVENTS, fields: Sequence[str] | None = None
    ) -> None:
        """``fields`` of the record are read, by default those that semantics looks at."""
        self._path, self._table = str(path), table
        try:
            self._file = pq.ParquetFile(path, memory_map=True)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"is no readable Parquet file: {error}", path=self._path) from error
        check_version((self._file.schema_arrow.metadata or {}).get(VERSION_KEY, b""), self._path)
        self._places = {name: at for at, name in enumerate(self._file.schema_arrow.names)}
        if not self._places.keys() >= {"session_id", "seq"}:
            raise InputError("lacks its columns session_id and seq", path=self._path)
        wanted = _OF_TABLE[table.folder] if fields is None else fields
        self._columns = [name for name in wanted if name in self._places]
        self._group = _Group(-1, np.zeros(_N_WORDS, np.int64), {})
        self.pieces: dict[str, list[Piece]] = {}
        for group in range(self._file.num_row_groups):
            for session_id, piece in self._pieces_of(group):
                self.pieces.setdefault(session_id, []).append(piece)

    def batches(self, piece: Piece) -> Iterator[np.ndarray]:
        """The rows of a piece by ``seq`` (``OP_DTYPE``; fields that are not read, or that the file
        lacks, are 0), in parts that stay in the cache."""
        if self._group.number != piece.group:
            self._group = self._read(piece.group)
        words = {n: values[piece.first : piece.last] for n, values in self._group.words.items()}
        seq = words[_SEQ_WORD]
        if not _is_ascending(seq):
            order = _order_of(seq)
            words = {n: values.take(order) for n, values in words.items()}
        for first in range(0, len(seq), _BATCH_ROWS):
            part = {n: values[first : first + _BATCH_ROWS] for n, values in words.items()}
            yield _records(self._group.base, part)

    def _pieces_of(self, group: int) -> Iterator[tuple[str, Piece]]:
        metadata = self._file.metadata.row_group(group)
        who = metadata.column(self._places["session_id"]).statistics
        seq = metadata.column(self._places["seq"]).statistics
        if who and seq and who.has_min_max and seq.has_min_max and who.min == who.max:
            yield str(who.min), Piece(group, 0, metadata.num_rows, int(seq.min))
            return
        table = self._table_of(group, ["session_id", "seq"])
        names = table["session_id"].unify_dictionaries().combine_chunks()
        codes, seqs = names.indices.to_numpy(), table["seq"].to_numpy()
        ends = [*np.flatnonzero(np.diff(codes)).tolist(), len(codes) - 1]
        first = 0
        for end in ends:
            min_seq = int(seqs[first : end + 1].min())
            yield str(names.dictionary[codes[end]]), Piece(group, first, end + 1, min_seq)
            first = end + 1

    def _read(self, group: int) -> _Group:
        base = np.zeros(1, OP_DTYPE)
        if self._table.folder in _KIND:
            base["kind"] = _KIND[self._table.folder]
        constant = self._constants(group)
        for name, value in constant.items():
            base[name] = value
        names = [name for name in self._columns if name not in constant]
        table = self._table_of(group, names)
        columns = {name: _values(table[name], self._table, name) for name in names}
        words = base.view(np.int64)
        return _Group(group, words, _words_of(columns, words))

    def _constants(self, group: int) -> dict[str, int]:
        """What the statistics say is the same in all rows; the numbers of the records never are."""
        metadata = self._file.metadata.row_group(group)
        found = {}
        for name in self._columns:
            known = metadata.column(self._places[name]).statistics
            if name == "seq" or known is None or not known.has_min_max or known.null_count:
                continue
            if (least := known.min) == known.max:
                found[name] = _code(self._table, name, least)
        return found

    def _table_of(self, group: int, columns: list[str]) -> pa.Table:
        try:
            return self._file.read_row_group(group, columns=columns, use_threads=False)
        except (OSError, pa.ArrowException, KeyError) as error:
            raise InputError(
                f"row group {group} does not read: {error}", path=self._path,
                next_step="export the run again",
            ) from error  # fmt: skip


def session_batches(files: Sequence[EventsFile], session_id: str) -> Iterator[np.ndarray]:
    """All records of a session in ``seq`` order."""
    found = [(piece, file) for file in files for piece in file.pieces.get(session_id, ())]
    found.sort(key=lambda entry: entry[0].min_seq)
    waiting = empty_batch()
    for number, (piece, file) in enumerate(found):
        next_seq = found[number + 1][0].min_seq if number + 1 < len(found) else _NO_SEQ
        for rows in file.batches(piece):
            both = _merged(waiting, rows) if len(waiting) else rows
            # what follows in this piece is larger than its last row
            n_ready = int(np.searchsorted(both["seq"], min(next_seq, int(rows["seq"][-1]) + 1)))
            if n_ready:
                yield both[:n_ready]
            waiting = both[n_ready:]
    if len(waiting):
        yield waiting


def _merged(waiting: np.ndarray, rows: np.ndarray) -> np.ndarray:
    both = concatenate_rows([waiting, rows])
    return take_rows(both, np.argsort(both["seq"], kind="stable"))


def _words_of(columns: dict[str, np.ndarray], base: np.ndarray) -> dict[int, np.ndarray]:
    """The columns as the words of a record that they stand in; the rest of these is ``base``."""
    words: dict[int, np.ndarray] = {}
    for name, values in columns.items():
        form = OP_DTYPE[name]
        place, offset = divmod(_OFFSETS[name], _WORD_BYTES)
        if form.itemsize == _WORD_BYTES:
            words[place] = values.astype(np.int64, copy=False)
            continue
        if place not in words:
            words[place] = np.full(len(values), base[place])
        lanes = words[place].view(form).reshape(-1, _WORD_BYTES // form.itemsize)
        lanes[:, offset // form.itemsize] = values
    return words


def _records(base: np.ndarray, words: dict[int, np.ndarray]) -> np.ndarray:
    """Records (``OP_DTYPE``) of these words, block by block: whole columns would leave the cache
    before the next one is written."""
    records = np.zeros((len(words[_SEQ_WORD]), _N_WORDS), np.int64)
    same = [n for n in np.flatnonzero(base).tolist() if n not in words]
    for first in range(0, len(records), _BLOCK_ROWS):
        block = records[first : first + _BLOCK_ROWS]
        for place in same:
            block[:, place] = base[place]
        for place, values in words.items():
            block[:, place] = values[first : first + _BLOCK_ROWS]
    return records.view(OP_DTYPE).reshape(-1)


def _order_of(seq: np.ndarray) -> np.ndarray:
    """What ``argsort`` gives (stable), in one pass where nearly all numbers of the range are there,
    each once."""
    least = int(seq.min())
    n_range = int(seq.max()) - least + 1
    if n_range <= 2 * len(seq):
        places = np.full(n_range, -1)
        places[seq - least] = np.arange(len(seq))
        order = places[places >= 0]
        if len(order) == len(seq):
            return order
    return np.argsort(seq, kind="stable")


def _is_ascending(seq: np.ndarray) -> bool:
    return bool((seq[1:] > seq[:-1]).all())


def _code(table: EventTable, name: str, value: Any) -> int:
    """One value of a column as a number: a word becomes the code of its enumeration."""
    if name not in table.enums:
        return int(value)
    return int(table.enums[name][2].__members__.get(str(value), 0))


def _values(column: Any, table: EventTable, name: str) -> np.ndarray:
    """One column as numbers; words become the codes of their enumeration."""
    if name not in table.enums:
        return np.asarray(column.to_numpy())
    words = column.unify_dictionaries().combine_chunks()
    codes = np.array([_code(table, name, word) for word in words.dictionary], np.uint8)
    values: np.ndarray = codes.take(words.indices.to_numpy())
    return values
