"""Engine snapshots on disk: where a session's steps go on after a crash.

    magic 8 bytes | version u4 | CRC-32 of the payload u4 | payload bytes u8 | payload (msgpack)

A file is replaced in one step and never half read: another magic, version, length or checksum
refuses it by name, and the steps are rebuilt from the raw records, which are always there.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from comminsight.errors import FormatError, InputError
from comminsight.format.document import UNREADABLE
from comminsight.semantics.engine import EngineSnapshot
from comminsight.semantics.template import Template

MAGIC = b"CISNAP\r\n"
SNAPSHOT_FILE_VERSION = 1
MAX_PAYLOAD_BYTES = 1 << 30
_HEADER = struct.Struct("<8sIIQ")
_REBUILD = "nothing is lost: the steps are rebuilt from the session's records"


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One session after record number ``delivered_seq``.

    Its first ``n_steps`` steps fill ``steps_bytes`` bytes of its steps file. ``templates`` is the
    digest of the set that the engine chose from: with another set it might choose otherwise.
    """

    engine: EngineSnapshot
    delivered_seq: int
    n_steps: int
    steps_bytes: int
    templates: str


def template_digest(templates: Sequence[Template]) -> str:
    """What tells one set of templates from another, whatever their order."""
    ordered = sorted(templates, key=lambda template: template.name)
    return hashlib.sha256(msgspec.json.encode(ordered)).hexdigest()[:32]


def snapshot_path(folder: Path, session_id: str) -> Path:
    """Where the snapshot of a session lies."""
    return folder / f"{session_id}.cisnap"


def write_snapshot(path: Path, snapshot: SessionSnapshot) -> None:
    """Replace the file in one step, durably. Raises InputError when it cannot be written."""
    payload = msgspec.msgpack.encode(snapshot)
    header = _HEADER.pack(MAGIC, SNAPSHOT_FILE_VERSION, zlib.crc32(payload), len(payload))
    temporary = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(header + payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", path=str(path),
            next_step="make room, or give the run a place where you may write",
        ) from error  # fmt: skip


def read_snapshot(path: Path) -> SessionSnapshot | None:
    """The snapshot, None where there is no file.

    Raises FormatError naming the file for anything but a whole snapshot of this version.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from error
    payload = _checked(path, data)
    try:
        return msgspec.msgpack.decode(payload, type=SessionSnapshot)
    except UNREADABLE as error:
        raise _refused(path, f"the payload does not read: {error}", _HEADER.size) from error


def _checked(path: Path, data: bytes) -> bytes:
    """The payload behind a header that is right about it."""
    if len(data) < _HEADER.size:
        raise _refused(path, "the header is cut short", len(data))
    magic, version, checksum, length = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise _refused(path, "is no engine snapshot")
    if version != SNAPSHOT_FILE_VERSION:
        message = f"snapshot version {version} is not {SNAPSHOT_FILE_VERSION}"
        raise _refused(path, message, len(MAGIC))
    payload = data[_HEADER.size :]
    if length != len(payload) or length > MAX_PAYLOAD_BYTES:
        message = f"{len(payload)} bytes of payload where the header says {length}"
        raise _refused(path, message, _HEADER.size)
    if zlib.crc32(payload) != checksum:
        raise _refused(path, "the checksum is wrong", _HEADER.size)
    return payload


def _refused(path: Path, message: str, offset_bytes: int = 0) -> FormatError:
    return FormatError(message, path=str(path), offset_bytes=offset_bytes, next_step=_REBUILD)
