"""One line of NCCL's Inspector plugin as a row, whatever version wrote it: the exact, slow way.

Sizes are bytes, times microseconds as the plugin writes them; -1 is "not stated" in every column
where 0 is a value.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np

from comminsight.format.inspector import NAMES
from comminsight.model.ops import Algorithm, Op, Protocol, TimingSource

ROW_DTYPE = np.dtype([
    ("context", "<i4"), ("op", "u1"), ("source", "u1"), ("algo", "u1"), ("proto", "u1"),
    ("peer", "<i4"), ("sn", "<i8"), ("size_bytes", "<i8"), ("exec_us", "<i8"), ("dump_us", "<i8"),
    ("start_us", "<i8"), ("stop_us", "<i8"), ("channels_us", "<i8"), ("spare", "<i4"),
])  # fmt: skip

MAX_SIZE_BYTES = 1 << 50  # no call is that large; a type that the plugin did not know gives more
MAX_US = 1 << 50
NOT_STATED = -1

# why a line has no row, or a field of it no value
BAD_LINE = "inspector.bad_line"
NO_HEADER = "inspector.no_header"
ABSURD_SIZE = "inspector.absurd_size"
UNKNOWN_OP = "inspector.unknown_op"
NO_SERIAL = "inspector.no_serial"
NOT_FINITE = "inspector.nan"

OPS: dict[str, int] = {name: op for op, name in NAMES.items()} | {"AllToAll": Op.ALL_TO_ALL}
SOURCES: dict[str, int] = {
    "kernel_gpu": TimingSource.GPU, "kernel_cpu": TimingSource.HOST_KERNEL_CALLBACK,
}  # fmt: skip
ALGORITHMS: dict[str, int] = {
    name: int(one) for one in Algorithm for name in (one.name, one.name.replace("_", ""))
}
PROTOCOLS: dict[str, int] = {one.name: one for one in Protocol}
_EMPTY: dict[str, Any] = {}


class Context(msgspec.Struct, frozen=True):
    """What a header and the metadata beside it say; keys that are absent stay at their default."""

    id: str = ""
    comm_name: str = ""
    rank: int = NOT_STATED
    n_ranks: int = 0
    nnodes: int = 0
    hostname: str = ""
    pid: int = 0
    version: str = ""
    mechanism: str = ""


def context_of(header: Any, metadata: Any) -> Context:
    """The context, with values of a wrong kind left at their default."""
    head = header if isinstance(header, dict) else _EMPTY
    meta = metadata if isinstance(metadata, dict) else _EMPTY
    return Context(
        id=_text(head, "id"), comm_name=_text(head, "comm_name"),
        rank=_whole(head, "rank", 1 << 24), n_ranks=max(0, _whole(head, "n_ranks", 1 << 24)),
        nnodes=max(0, _whole(head, "nnodes", 1 << 24)), hostname=_text(meta, "hostname"),
        pid=max(0, _whole(meta, "pid", 1 << 31)),
        version=_text(meta, "inspector_output_format_version"),
        mechanism=_text(meta, "rec_mechanism"),
    )  # fmt: skip


def row_of(
    document: dict[str, Any], context: int, dump_us: int, counts: Counter[str]
) -> tuple[Any, ...] | None:
    """The row of a line with ``coll_perf`` or ``p2p_perf``; None for one without."""
    kind = "coll" if "coll_perf" in document else "p2p"
    perf = document.get(f"{kind}_perf")
    if not isinstance(perf, dict):
        return None
    op = OPS.get(_text(perf, kind), Op.UNKNOWN)
    counts[UNKNOWN_OP] += op == Op.UNKNOWN
    size_bytes = _whole(perf, f"{kind}_msg_size_bytes", MAX_SIZE_BYTES)
    counts[ABSURD_SIZE] += size_bytes < 0
    serial = _whole(perf, f"{kind}_sn", 1 << 32)
    counts[NO_SERIAL] += serial < 0
    counts[NOT_FINITE] += isinstance(perf.get(f"{kind}_busbw_gbs"), str)
    start_us, stop_us, channels_us = _trace_us(perf, kind)
    return (
        context, op, SOURCES.get(_text(perf, f"{kind}_timing_source"), TimingSource.UNKNOWN),
        ALGORITHMS.get(_text(perf, f"{kind}_algo").upper(), Algorithm.UNKNOWN),
        PROTOCOLS.get(_text(perf, f"{kind}_proto").upper(), Protocol.UNKNOWN),
        _whole(perf, f"{kind}_peer", 1 << 24), serial, max(0, size_bytes),
        _whole(perf, f"{kind}_exec_time_us", MAX_US), dump_us, start_us, stop_us, channels_us, 0,
    )  # fmt: skip


def _trace_us(perf: dict[str, Any], kind: str) -> tuple[int, int, int]:
    """Start and stop of the op on the host, and from its first channel's start to its last one's
    stop: the plugin's own time is that of the longest channel alone."""
    stamps = next(
        (
            perf[key]
            for key in ("event_trace_ts", f"{kind}_event_trace_ts")
            if isinstance(perf.get(key), dict)
        ),
        _EMPTY,
    )
    start, stop = (
        _whole(stamps, f"{kind}_start_ts", 1 << 62),
        _whole(stamps, f"{kind}_stop_ts", 1 << 62),
    )
    channels = stamps.get("kernel_events")
    spans = [
        (_whole(one, "kernel_start_ts", 1 << 62), _whole(one, "kernel_stop_ts", 1 << 62))
        for one in (channels if isinstance(channels, list) else [])
        if isinstance(one, dict)
    ]
    whole = [span for span in spans if 0 < span[0] <= span[1]]
    if not whole or len(whole) < len(spans):
        return max(0, start), max(0, stop), NOT_STATED
    first, last = min(one for one, _ in whole), max(one for _, one in whole)
    return max(0, start), max(0, stop), last - first


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    return value[:256] if isinstance(value, str) else ""


def _whole(fields: dict[str, Any], key: str, limit: int) -> int:
    """The number, ``NOT_STATED`` where it is none, negative or not below ``limit``."""
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
        return NOT_STATED
    return value
