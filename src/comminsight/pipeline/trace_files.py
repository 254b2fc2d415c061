"""Which reader takes a file of a profiler: told by content, for databases by their tables."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from comminsight.errors import InputError
from comminsight.format.ascend import NEXT_STEP as ASCEND_STEP
from comminsight.format.ascend_db import is_ascend_db
from comminsight.format.expanding import expanded_head
from comminsight.format.inspector_json import is_inspector, read_inspector
from comminsight.format.kineto import NEXT_STEP, is_kineto, read_kineto
from comminsight.format.nsys import is_nsys, read_nsys
from comminsight.format.regular_file import open_regular
from comminsight.format.sqlite_file import SqliteFile, is_sqlite
from comminsight.model.device_trace import DeviceTrace
from comminsight.pipeline.ascend_profiles import is_ascend, read_ascend_profiles

HEAD_BYTES = 1 << 16
DATABASE_STEP = "give an export of Nsight Systems, or the database of Ascend's profiler"


class TraceKind(StrEnum):
    """How files of profilers are read: each by itself, those of a folder together, or lines."""

    FILE = "file"
    ASCEND = "ascend"
    INSPECTOR = "inspector"


class UnknownDatabaseError(InputError):
    """An SQLite file of something else."""


def is_trace(head: bytes) -> bool:
    """Whether a file that begins so may be one of a profiler; every SQLite file may."""
    return is_kineto(head) or is_sqlite(head) or is_inspector(head) or is_ascend(head)


def by_kind(paths: Iterable[Path]) -> dict[TraceKind, list[Path]]:
    """The files by how they are read, in their order. What does not open counts as FILE."""
    found: dict[TraceKind, list[Path]] = {kind: [] for kind in TraceKind}
    for path in paths:
        try:
            found[_kind(path)].append(path)
        except (InputError, OSError):
            found[TraceKind.FILE].append(path)
    return found


def read_traces(path: Path) -> tuple[DeviceTrace, ...]:
    """The traces of one file, at least one; of Ascend's only what this one tells.

    Raises InputError for what is none, OSError for a file that vanished.
    """
    kind = _kind(path)
    if kind is TraceKind.ASCEND:
        profile = read_ascend_profiles([path])[0]
        if found := (*profile.traces, *profile.bare):
            return found
        raise InputError("tells of no device", path=str(path), next_step=ASCEND_STEP)
    with _opened(path) as stream:
        if kind is TraceKind.INSPECTOR:
            read_inspector(stream, path=str(path))
            raise InputError("holds ops without devices", path=str(path), next_step=NEXT_STEP)
        if not is_sqlite(stream.read(16)):
            stream.seek(0)
            return (read_kineto(stream, path=str(path)),)
    with SqliteFile(str(path), next_step=DATABASE_STEP) as base:
        if is_nsys(base.tables):
            return read_nsys(base, path=str(path))
    raise UnknownDatabaseError(
        "has no tables of a known profiler", path=str(path), next_step=DATABASE_STEP
    )


def _kind(path: Path) -> TraceKind:
    with _opened(path) as stream:
        head = expanded_head(stream.read(HEAD_BYTES))
    if is_inspector(head):
        return TraceKind.INSPECTOR
    if is_sqlite(head):
        with SqliteFile(str(path), next_step=DATABASE_STEP) as base:
            return TraceKind.ASCEND if is_ascend_db(base.tables) else TraceKind.FILE
    return TraceKind.ASCEND if not is_kineto(head) and is_ascend(head) else TraceKind.FILE


def _opened(path: Path) -> BinaryIO:
    opened = open_regular(path)
    if opened is None:
        raise InputError("is no file", path=str(path), next_step=NEXT_STEP)
    return opened
