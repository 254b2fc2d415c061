"""SQLite files from outside: read only, one statement at a time, nothing of them is run.

A file may hold views, triggers and functions; only plain tables are looked at, and an authorizer
refuses everything but reading columns. Tables and columns that are absent are told as absent.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self
from urllib.parse import quote

from comminsight.errors import InputError
from comminsight.format.regular_file import open_regular

MAGIC = b"SQLite format 3\x00"
MAX_VALUE_BYTES = 1 << 24
MAX_STEPS = 20_000  # calls of the progress handler, each of which is STEP_SIZE instructions
STEP_SIZE = 1_000_000
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)  # names are decoded too
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})


def is_sqlite(head: bytes) -> bool:
    """Whether a file that begins so is an SQLite database."""
    return head.startswith(MAGIC)


class SqliteFile:
    """The tables of one file; to be closed, or used as a context manager.

    Raises InputError naming the file for what cannot be read, here and in ``rows``.
    """

    def __init__(self, path: str, *, next_step: str) -> None:
        self._path, self._next_step = path, next_step
        self._n_steps = 0
        self._held = self._opened()
        try:
            self._base = sqlite3.connect(self._place(), uri=True, isolation_level=None)
            self._base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            self._base.text_factory = _text
            self._base.set_progress_handler(self._step, STEP_SIZE)
            self._base.execute("PRAGMA trusted_schema=OFF")
            names = self._base.execute("SELECT name FROM sqlite_master WHERE type='table'")
            self.tables = {str(name): self._columns(str(name)) for (name,) in names.fetchall()}
            self._base.set_authorizer(_authorize)
        except _UNREADABLE as error:
            self._held.close()
            raise self._refused(error) from error

    def _opened(self) -> BinaryIO:
        """The file itself: SQLite opens by name, and would wait for whoever writes to a pipe that
        took the place of a file."""
        try:
            held = open_regular(Path(self._path))
        except OSError as error:
            raise self._refused(error) from error
        if held is None:
            raise InputError("is no file", path=self._path, next_step=self._next_step)
        return held

    def _place(self) -> str:
        own = f"/proc/self/fd/{self._held.fileno()}"
        place = own if os.path.exists(own) else self._path
        return f"file:{quote(place)}?mode=ro&immutable=1"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._base.close()
        self._held.close()

    def rows(self, table: str, columns: Sequence[str], *, limit: int) -> Iterator[tuple[Any, ...]]:
        """The rows of ``columns``, None in those that the table lacks; none where there is no such
        table. Raises InputError for more than ``limit``."""
        own = self.tables.get(table)
        if own is None:
            return
        listed = ", ".join(_name(one) if one in own else "NULL" for one in columns)
        try:
            cursor = self._base.execute(f"SELECT {listed} FROM {_name(table)}")  # noqa: S608
            for n, row in enumerate(cursor):
                if n >= limit:
                    said = f"more than {limit:,} rows in {table}"
                    raise InputError(said, path=self._path, next_step=self._next_step)
                yield row
        except _UNREADABLE as error:
            raise self._refused(error) from error

    def _columns(self, table: str) -> frozenset[str]:
        found = self._base.execute(f"PRAGMA table_info({_name(table)})")
        return frozenset(str(row[1]) for row in found)

    def _step(self) -> int:
        self._n_steps += 1
        return int(self._n_steps > MAX_STEPS)

    def _refused(self, error: Exception) -> InputError:
        return InputError(
            f"is no SQLite file that can be read: {error}", path=self._path,
            next_step=self._next_step,
        )  # fmt: skip


def _authorize(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
