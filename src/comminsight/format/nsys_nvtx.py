"""What NCCL says of its calls through NVTX, as Nsight Systems exports it: op, size, communicator.

A call is a range in the domain "NCCL" on the thread that made it. Its payload is described by the
tables of the export themselves; a field that is absent there is unknown. Kernels of a group call
are launched by its end, which stands for several calls: they get no call at all.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from comminsight.format.kineto_events import MAX_RANK, whole_number
from comminsight.format.sqlite_file import SqliteFile
from comminsight.format.torch_names import op_of_call
from comminsight.model.device_trace import CollectiveCall

MAX_ROWS = 1 << 22
RANGE_TYPES = frozenset({59, 60})
MAX_NESTED = 8
_HEADER = struct.Struct("<IIIIQQ")  # domain, 0, schema, 0, payload bytes, bytes in all
_WIDTHS = {5: "<i", 6: "<I", 17: "<q", 18: "<Q", 22: "<Q"}  # by the type code of a schema entry
_COMM, _SIZE, _RANK, _RANKS = "NCCL communicator ID", "Message size [bytes]", "Rank", "No. of ranks"
_CALL = "nccl"
_GROUP = "ncclgroup"
_INIT = "ncclcomminit"


class NcclCalls:
    """The calls of all threads of an export; ``ranks`` are those of the largest communicator that
    each process initialised, as (rank, number of ranks)."""

    def __init__(self, base: SqliteFile, names: Mapping[Any, str]) -> None:
        self.ranks: dict[int, tuple[int, int]] = {}
        self._by_thread: dict[Any, list[tuple[int, int, CollectiveCall | None]]] = defaultdict(list)
        self._fields = _schemas(base)
        self._read(base, names)
        for own in self._by_thread.values():
            own.sort(key=lambda one: one[:2])
        self._begins = {key: [one[0] for one in own] for key, own in self._by_thread.items()}

    def at(self, thread: Any, when_ns: int) -> CollectiveCall | None:
        """The innermost call that was open on a thread; None for none, and in a group's end."""
        place = bisect_right(self._begins.get(thread, []), when_ns)
        for begin, end, call in reversed(
            self._by_thread[thread][max(0, place - MAX_NESTED) : place]
        ):
            if begin <= when_ns <= end:
                return call
        return None

    def _read(self, base: SqliteFile, names: Mapping[Any, str]) -> None:
        columns = (
            "start", "end", "eventType", "text", "textId", "domainId", "globalTid", "binaryData",
            "jsonText", "jsonTextId",
        )  # fmt: skip
        for start, end, kind, text, key, domain, thread, binary, json_text, json_key in base.rows(
            "NVTX_EVENTS", columns, limit=MAX_ROWS
        ):
            name = str(text) if text is not None else names.get(key, "")
            if kind not in RANGE_TYPES or not name.startswith(_CALL):
                continue
            if type(start) is not int or type(end) is not int or not start <= end:
                continue
            said = json_text if json_text is not None else names.get(json_key)
            fields = self._decoded(domain, binary) or _of_json(said)
            self._see(name, thread, fields)
            self._by_thread[thread].append((start, end, _call(name, fields)))

    def _see(self, name: str, thread: Any, fields: Mapping[str, Any]) -> None:
        if not name.lower().startswith(_INIT) or type(thread) is not int:
            return
        n_ranks = whole_number(fields.get(_RANKS), MAX_RANK)
        rank = whole_number(fields.get(_RANK), max(n_ranks, 0))
        process = process_of(thread)
        if rank >= 0 and n_ranks > self.ranks.get(process, (0, 0))[1]:
            self.ranks[process] = rank, n_ranks

    def _decoded(self, domain: Any, binary: Any) -> dict[str, Any]:
        """The fields of a payload by their names; {} where no table describes it."""
        if not isinstance(binary, bytes) or len(binary) < _HEADER.size:
            return {}
        own_domain, _, schema, _, n_bytes, _ = _HEADER.unpack_from(binary)
        payload = binary[_HEADER.size : _HEADER.size + min(n_bytes, len(binary))]
        known = self._fields.get((own_domain, schema)) or self._fields.get((domain, schema), [])
        found: dict[str, Any] = {}
        for name, form, offset in known:
            if offset + struct.calcsize(form) <= len(payload):
                found[name] = struct.unpack_from(form, payload, offset)[0]
        return found


def process_of(global_id: int) -> int:
    """The process number that is packed into a thread's or process's number."""
    return (global_id >> 24) & 0xFFFFFF


def _schemas(base: SqliteFile) -> dict[tuple[Any, Any], list[tuple[str, str, int]]]:
    fields: dict[tuple[Any, Any], list[tuple[str, str, int]]] = defaultdict(list)
    columns = ("domainId", "schemaId", "type", "name", "offset")
    for domain, schema, kind, name, offset in base.rows(
        "NVTX_PAYLOAD_SCHEMA_ENTRIES", columns, limit=1 << 16
    ):
        at = 0 if offset is None else whole_number(offset, 1 << 16)
        if (form := _WIDTHS.get(kind)) is not None and at >= 0 and isinstance(name, str):
            fields[domain, schema].append((name, form, at))
    return fields


def _of_json(text: Any) -> dict[str, Any]:
    if not isinstance(text, str) or len(text) > 1 << 16:
        return {}
    try:
        said = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}
    return next((one for one in said.values() if isinstance(one, dict)), said)


def _call(name: str, fields: Mapping[str, Any]) -> CollectiveCall | None:
    if name.lower().startswith(_GROUP):
        return None
    communicator = whole_number(fields.get(_COMM), 1 << 64)
    return CollectiveCall(
        op=op_of_call(name.removeprefix(_CALL)), is_own=False,
        size_bytes=max(0, whole_number(fields.get(_SIZE), 1 << 50)),
        group=f"0x{communicator:x}" if communicator >= 0 else "",
    )  # fmt: skip
