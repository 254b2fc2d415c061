"""Which files of those given are what: told by their content, never by their names.

A folder is searched through, links in it are not followed. What is of no known form is reported.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from comminsight.errors import InputError
from comminsight.format.expanding import GZIP, ZSTD, expanded_head
from comminsight.format.flight_recorder import is_flight_recorder
from comminsight.format.log_lines import UTF16
from comminsight.format.log_reader import LogReader
from comminsight.format.nccl_tests_json import is_nccl_tests_json
from comminsight.format.ras import is_ras
from comminsight.format.regular_file import read_regular
from comminsight.format.safe_pickle import is_pickle
from comminsight.pipeline.host_files import is_host_file
from comminsight.pipeline.trace_files import is_trace

HEAD_BYTES = 1 << 16
CONTROLS = bytes((*range(9), *range(14, 27)))  # no text has them
MAX_DEPTH = 6
MAX_FILES = 100_000
NEXT_STEP = (
    "give logs, Flight Recorder dumps, answers of ncclras, profiler traces, results of nccl-tests, "
    "what tools printed of ports, counters or PCI bridges, or folders of them"
)


class FileForm(StrEnum):
    """What a file is."""

    FLIGHT_RECORDER = "flight_recorder"
    RAS = "ras"
    TRACE = "trace"
    HOST = "host"
    LOG = "log"
    EMPTY = "empty"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EvidenceFiles:
    """The files by form, each list in the order in which they were found."""

    dumps: list[Path] = field(default_factory=list)
    ras: list[Path] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)
    hosts: list[Path] = field(default_factory=list)
    unknown: list[tuple[Path, str]] = field(default_factory=list)  # with the code of the reason
    refused: list[InputError] = field(default_factory=list)  # why the system does not give some

    @property
    def is_any(self) -> bool:
        """True where one of them may tell something."""
        return bool(self.dumps or self.ras or self.traces or self.logs or self.hosts)

    def refuse(self, path: Path, error: OSError) -> None:
        """Notes a file or folder that the system does not give."""
        self.unknown.append((path, "unread.unreadable"))
        self.refused.append(not_given(path, error))


def not_given(path: Path, error: OSError) -> InputError:
    """That the system does not give a file or folder, and why."""
    why = f"cannot be read: {error.strerror}"
    return InputError(why, path=str(path), next_step=NEXT_STEP)


def sorted_files(paths: Iterable[Path]) -> EvidenceFiles:
    """The files in ``paths`` by their form. What is in a folder and is not given is noted.

    Raises InputError for a path that does not exist, for one that is neither file nor folder, and
    for more than ``MAX_FILES`` files.
    """
    found = EvidenceFiles()
    places = {
        FileForm.FLIGHT_RECORDER: found.dumps, FileForm.RAS: found.ras, FileForm.LOG: found.logs,
        FileForm.TRACE: found.traces, FileForm.HOST: found.hosts,
    }  # fmt: skip
    for path in dict.fromkeys(_files(paths, found)):
        try:
            head = _head(path)
            form = form_of(head)
        except OSError as error:
            found.refuse(path, error)
            continue
        if form in places:
            places[form].append(path)
        if form is FileForm.HOST and _has_log_lines(head):  # a job that printed such a table
            found.logs.append(path)
        if form is FileForm.UNKNOWN:
            found.unknown.append((path, "unread.unknown_form"))
    return found


def _has_log_lines(head: bytes) -> bool:
    """True where the reader of logs knows a line of it."""
    return any(True for _ in LogReader(io.BytesIO(head)))


def form_of(head: bytes) -> FileForm:
    """What a file is that begins with ``head``; text of no other form is a log."""
    if not head.strip(b"\0 \r\n\t"):
        return FileForm.EMPTY
    if is_trace(head):  # its header has keys of Flight Recorder dumps
        return FileForm.TRACE
    if is_flight_recorder(head):
        return FileForm.FLIGHT_RECORDER
    if is_nccl_tests_json(head):  # it has keys of answers of RAS
        return FileForm.HOST
    if is_ras(head):
        return FileForm.RAS
    if is_pickle(head):
        return FileForm.UNKNOWN
    if is_host_file(head):
        return FileForm.HOST
    return FileForm.LOG if _is_text(head) else FileForm.UNKNOWN


def _is_text(head: bytes) -> bool:
    """True for what the reader of logs takes: text, perhaps compressed or with a few NUL bytes."""
    if head.startswith((GZIP, ZSTD, *UTF16)):
        return True
    sample = head.lstrip(b"\0")[:4096]
    odd = len(sample) - len(sample.translate(None, CONTROLS))
    return odd <= len(sample) // 50


def _head(path: Path) -> bytes:
    """How it begins; nothing for what has become no file since it was found."""
    return expanded_head(read_regular(path, HEAD_BYTES) or b"")


def _files(paths: Iterable[Path], found: EvidenceFiles) -> Iterator[Path]:
    left = MAX_FILES
    for path in paths:
        for one in _files_of(path, found):
            left -= 1
            if left < 0:
                raise InputError(
                    f"more than {MAX_FILES:,} files", path=str(path),
                    next_step="give the folders of one attempt of the job",
                )  # fmt: skip
            yield one


def _files_of(path: Path, found: EvidenceFiles) -> Iterator[Path]:
    try:
        mode = path.stat().st_mode
        inside = _inside(path) if stat.S_ISDIR(mode) else ()
    except OSError as error:
        raise not_given(path, error) from error
    if stat.S_ISDIR(mode):
        yield from _files_in(inside, MAX_DEPTH, found)
    elif stat.S_ISREG(mode):
        yield path
    else:
        raise InputError("is neither a file nor a folder", path=str(path), next_step=NEXT_STEP)


def _inside(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if not one.name.startswith("."))


def _files_in(entries: Iterable[Path], depth: int, found: EvidenceFiles) -> Iterator[Path]:
    for one in entries:
        try:
            mode = one.lstat().st_mode
            inside = _inside(one) if stat.S_ISDIR(mode) and depth > 1 else ()
        except OSError as error:  # it has vanished, or its folder lists names and gives no more
            found.refuse(one, error)
            continue
        if stat.S_ISREG(mode):
            yield one
        yield from _files_in(inside, depth - 1, found)
