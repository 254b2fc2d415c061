"""One file of an incident: how it is read, what names it tells, and how it is written without."""

from __future__ import annotations

import io
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from comminsight.errors import FormatError, InputError
from comminsight.format.document import UNREADABLE
from comminsight.format.expanding import expanded_bytes
from comminsight.format.layout import SEGMENT_MAGIC
from comminsight.format.log_lines import UTF16, blocks
from comminsight.format.log_reader import LogReader
from comminsight.format.nccl_tests_json import is_nccl_tests_json
from comminsight.format.ras import is_ras, parse_ras
from comminsight.format.regular_file import read_regular
from comminsight.format.rewrite import (
    Rewrite,
    rewritten,
    rewritten_box,
    rewritten_json,
    rewritten_segment,
)
from comminsight.format.safe_pickle import is_pickle, load_plain
from comminsight.format.unfolding import unfolded_size
from comminsight.model.report import RunReport
from comminsight.pipeline.evidence_files import HEAD_BYTES, FileForm, form_of
from comminsight.pipeline.host_files import hosts_in
from comminsight.pipeline.masking import HOST_KEYS, Masker

MAX_FILE_BYTES = 1 << 30
MAX_DOCUMENT_BYTES = 64 << 20
MAX_VALUES = 16 << 20  # of a pickle
PIECE_BYTES = 1 << 20  # of text that is masked at once
UTF16_MARKS = tuple(UTF16)


class PartKind(StrEnum):
    """How a file is written anew."""

    SEGMENT = "segment"
    BOX = "box"
    TEXT = "text"  # JSON, pickles of plain values, logs: told by content


@dataclass(frozen=True, slots=True)
class Part:
    """A file that goes into an incident under ``name``."""

    name: str
    path: Path
    kind: PartKind

    @property
    def mtime_ns(self) -> int:
        """When it was last written; 0 where it has vanished."""
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return 0


class Masking:
    """Masks parts by one masker; without one every part stays as it is."""

    def __init__(self, masker: Masker | None) -> None:
        self.masker = masker

    def learn(self, part: Part) -> None:
        """The names that the part tells; one that does not read tells none."""
        if self.masker is None:
            return
        self.masker.learn("", part.name)
        try:
            _rewritten_part(part, self._learnt, self.masker)
        except (InputError, OSError):
            return

    def learn_report(self, report: RunReport) -> None:
        """The names in a report."""
        if self.masker is not None:
            rewritten(msgspec.to_builtins(report), self._learnt)

    def name(self, name: str) -> str:
        """A member's name without the names of hosts and users in it."""
        if self.masker is None:
            return name
        return "/".join(self.masker.text(part) for part in name.split("/"))

    def document(self, data: bytes) -> bytes:
        """A JSON document of ours."""
        return data if self.masker is None else rewritten_json(data, self.masker.field)

    def _learnt(self, key: str, text: str) -> str:
        if self.masker is not None:
            self.masker.learn(key, text)
        return text


def written_part(part: Part, masking: Masking) -> bytes | None:
    """The bytes that go into the incident; None for what is of no form that can be masked.

    Raises InputError and OSError for what does not read.
    """
    if masking.masker is None:
        return _read(part.path)
    return _rewritten_part(part, masking.masker.field, None)


def _rewritten_part(part: Part, rewrite: Rewrite, learner: Masker | None) -> bytes | None:
    data = _read(part.path)
    if part.kind is PartKind.SEGMENT:
        return _segment(data, rewrite, part)
    if part.kind is PartKind.BOX:
        return rewritten_box(data, _read(part.path), rewrite, path=str(part.path))
    data = expanded_bytes(data, max_bytes=MAX_FILE_BYTES, path=str(part.path))
    if learner is not None:
        _learn_by_readers(data, part, learner)
    return _text(data, rewrite, part)


def _segment(data: bytes, rewrite: Rewrite, part: Part) -> bytes:
    """A file whose header does not read stays one of which nothing can be read."""
    try:
        return rewritten_segment(data, rewrite, path=str(part.path))
    except FormatError:
        return SEGMENT_MAGIC if data else b""


def _read(path: Path) -> bytes:
    data = read_regular(path, MAX_FILE_BYTES + 1)
    if data is None:
        raise InputError("is no file", path=str(path))
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"is larger than {MAX_FILE_BYTES >> 30} GiB", path=str(path))
    return data


def _text(data: bytes, rewrite: Rewrite, part: Part) -> bytes | None:
    if is_pickle(data):
        plain = load_plain(data[:MAX_DOCUMENT_BYTES], path=str(part.path))
        if unfolded_size(plain, MAX_VALUES) > MAX_VALUES:
            raise FormatError("unfolds to more than any dump holds", path=str(part.path))
        return _encoded(rewritten(plain, rewrite), part)
    if data.lstrip()[:1] in {b"{", b"["} and len(data) <= MAX_DOCUMENT_BYTES:
        try:
            document = msgspec.json.decode(data)
        except UNREADABLE:
            if is_nccl_tests_json(data[:HEAD_BYTES]):  # cut, after the whole environment
                return None
        else:
            if is_nccl_tests_json(data[:HEAD_BYTES]):
                document.pop("env", None)
            return _encoded(rewritten(document, rewrite), part)
    if form_of(data[:HEAD_BYTES]) is FileForm.UNKNOWN:
        return None
    return _lines(data, rewrite, part)


def _encoded(document: Any, part: Part) -> bytes:
    try:
        return msgspec.json.encode(document)
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"cannot be written as JSON: {error}", path=str(part.path)) from error


def _lines(data: bytes, rewrite: Rewrite, part: Part) -> bytes:
    """A text, piece by piece; UTF-16 becomes UTF-8."""
    if data.startswith(UTF16_MARKS):
        data = b"\n".join(block.data for block in blocks(io.BytesIO(data), path=str(part.path)))
    pieces = []
    while data:
        end = data.find(b"\n", PIECE_BYTES) + 1 or len(data)
        text = data[:end].decode("utf-8", "surrogateescape")
        pieces.append(rewrite("", text).encode("utf-8", "surrogateescape"))
        data = data[end:]
    return b"".join(pieces)


def _learn_by_readers(data: bytes, part: Part, learner: Masker) -> None:
    """Names that the readers of answers and logs find where no field tells that they are names."""
    try:
        if is_ras(data):
            _learn_hosts(msgspec.to_builtins(parse_ras(data)), learner)
        elif form_of(data[:HEAD_BYTES]) is FileForm.HOST:
            for host in hosts_in(data, part.path.name):
                learner.learn_host(host)
        elif form_of(data[:HEAD_BYTES]) is FileForm.LOG:
            for event in LogReader(io.BytesIO(data), file=str(part.path)):
                if event.host:
                    learner.learn_host(event.host)
    except InputError:
        return


def _learn_hosts(value: Any, learner: Masker) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in HOST_KEYS and isinstance(inner, str):
                learner.learn_host(inner)
            _learn_hosts(inner, learner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _learn_hosts(inner, learner)
