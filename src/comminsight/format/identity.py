"""The identity JSON of black boxes and segments: who wrote, with which layouts and settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from comminsight.errors import FormatError
from comminsight.format.document import UNREADABLE
from comminsight.format.schema import Layout, dtype_of
from comminsight.model.event import COMM_DTYPE
from comminsight.model.ranges import MAX_MEMBERS
from comminsight.model.topology import UNKNOWN_RANK, SessionIdentity

MAX_JSON_BYTES = 1 << 20
BOOT_ID_CHARS = 8

T = TypeVar("T")
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Rank = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=MAX_MEMBERS)]
WorldSize = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=MAX_MEMBERS)]


class _Identity(msgspec.Struct, frozen=True):
    run_id: str = ""
    host: str = ""
    boot_id: str = ""
    pid: Int64 = -1
    pid_start_ticks: Int64 = 0
    global_rank: Rank = UNKNOWN_RANK
    local_rank: Rank = UNKNOWN_RANK
    world_size: WorldSize = -1
    restart_count: Int64 = 0
    created_mono_ns: Int64 = 0
    created_real_ns: Int64 = 0


class _Document(msgspec.Struct, frozen=True):
    layout: Layout | None = None
    comm_layout: Layout | None = None
    identity: _Identity | None = None
    versions: dict[str, str] = {}
    environment: dict[str, str] = {}
    settings: dict[str, Int64] = {}


@dataclass(frozen=True, slots=True)
class StreamHeader:
    """What the identity JSON says."""

    identity: SessionIdentity
    settings: dict[str, int]
    environment: dict[str, str]
    record_dtype: np.dtype[Any]
    comm_dtype: np.dtype[Any]


def session_id(boot_id: str, pid: int, pid_start_ticks: int) -> str:
    """The name of a session: ``<first 8 of boot id>-<pid>-<start ticks>``."""
    return f"{boot_id[:BOOT_ID_CHARS]}-{pid}-{pid_start_ticks}"


def parse_header_json(data: bytes, *, path: str = "", offset_bytes: int = 0) -> StreamHeader:
    """The header that ``data`` states; FormatError where it is no such JSON or names a layout that
    is not allowed."""
    document = _decode(data, _Document, path, offset_bytes)
    if document.layout is None or document.identity is None:
        message = "the header states no record layout or no identity"
        raise FormatError(message, path=path, offset_bytes=offset_bytes)
    try:
        record_dtype = dtype_of(document.layout)
        comm_dtype = COMM_DTYPE
        if document.comm_layout is not None:
            comm_dtype = dtype_of(document.comm_layout, with_strings=True)
    except FormatError as error:
        raise FormatError(str(error), path=path, offset_bytes=offset_bytes) from error
    if "seq" not in (record_dtype.names or ()):
        raise FormatError("records without seq", path=path, offset_bytes=offset_bytes)
    return StreamHeader(
        identity=_session(document.identity, document.versions),
        settings=dict(document.settings),
        environment=dict(document.environment),
        record_dtype=record_dtype,
        comm_dtype=comm_dtype,
    )


def replace_identity(current: StreamHeader, data: bytes, *, path: str = "") -> StreamHeader:
    """``current`` with what an IDENTITY frame states: the header's JSON again, or its identity
    object alone. The layouts stay: they hold for the whole file."""
    document = _decode(data, _Document, path, 0)
    stated = document.identity or _decode(data, _Identity, path, 0)
    if not stated.boot_id:
        raise FormatError("an identity without boot id", path=path)
    return replace(
        current,
        identity=_session(stated, document.versions or current.identity.versions),
        settings=document.settings or current.settings,
    )


def _session(stated: _Identity, versions: dict[str, str]) -> SessionIdentity:
    name = session_id(stated.boot_id, stated.pid, stated.pid_start_ticks)
    return SessionIdentity(session_id=name, versions=versions, **msgspec.structs.asdict(stated))


def _decode(data: bytes, kind: type[T], path: str, offset_bytes: int) -> T:
    if len(data) > MAX_JSON_BYTES:
        message = f"header JSON of {len(data)} bytes, more than {MAX_JSON_BYTES}"
        raise FormatError(message, path=path, offset_bytes=offset_bytes)
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        message = f"header JSON does not read: {error}"
        raise FormatError(message, path=path, offset_bytes=offset_bytes) from error
