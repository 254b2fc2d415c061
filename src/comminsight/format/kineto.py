"""Traces of the PyTorch profiler (Kineto, Chrome's trace format), plain or compressed.

The document is decoded into the few fields that are looked at; the rest is passed over unread.
Stamps are microseconds whatever ``displayTimeUnit`` says, which is for viewers only; the wall clock
is ``baseTimeNanoseconds`` plus the stamp, and the stamp alone where there is no base.
"""

from __future__ import annotations

import re
from typing import Any, BinaryIO

import msgspec

from comminsight.errors import InputError
from comminsight.format.expanding import expanded
from comminsight.format.kineto_events import MAX_RANK, members_of, whole_number
from comminsight.format.kineto_found import FoundEvents
from comminsight.format.kineto_slices import SLICE_BYTES, Distributed, Group, SlicedDocument
from comminsight.format.kineto_trace import device_trace
from comminsight.model.device_trace import DeviceTrace, TraceGroup
from comminsight.model.ranges import MAX_MEMBERS

MAX_TRACE_BYTES = 1 << 30  # expanded
MAX_EVENTS = 1 << 23
MAX_GROUPS = 1 << 16
NEXT_STEP = "give the trace that torch.profiler wrote for one rank, whole and as it was written"
_HEADERS = (b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"', b'"displayTimeUnit"')
_EVENTS = re.compile(rb'^\{(?:.{0,65536})"traceEvents"\s*:\s*\[', re.DOTALL)
_RANK_IN_NAME = re.compile(r"rank[_\-.=\[]?(\d{1,7})(?!\d)", re.ASCII | re.IGNORECASE)


def is_kineto(head: bytes) -> bool:
    """Whether a file that begins so is a trace: an object with the header of the profiler, or with
    ``traceEvents`` near its beginning."""
    body = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not body.startswith(b"{"):
        return False
    is_headed = _HEADERS[0] in body and any(key in body for key in _HEADERS[1:])
    return is_headed or _EVENTS.match(body) is not None


def read_kineto(stream: BinaryIO, *, path: str = "", slice_bytes: int = SLICE_BYTES) -> DeviceTrace:
    """The trace in ``stream``; its rank is that of its header, then of its name. In memory stand at
    a time ``slice_bytes`` of the text, and what was found.

    Raises InputError naming file and place for what is no such trace, holds several processes,
    no device or collective at all, or is beyond all bounds.
    """
    pieces = expanded(stream, max_bytes=MAX_TRACE_BYTES, path=path, next_step=NEXT_STEP)
    document = SlicedDocument(pieces, path=path, next_step=NEXT_STEP, slice_bytes=slice_bytes)
    found = FoundEvents()
    for events in document:
        found.add(events)
        if found.n_events > MAX_EVENTS:
            raise InputError(f"more than {MAX_EVENTS:,} events", path=path, next_step=NEXT_STEP)
    header = document.header.distributed or Distributed()
    groups = tuple(_group(one) for one in header.pg_config[:MAX_GROUPS])
    base_ns = whole_number(document.header.base_ns, 1 << 62)
    return msgspec.structs.replace(
        device_trace(found, max(0, base_ns), groups, path),
        global_rank=_rank(header, path, document.header.trace_name),
        world_size=max(0, whole_number(header.world_size, MAX_RANK)),
    )


def _rank(header: Distributed, path: str, trace_name: Any) -> int:
    if (rank := whole_number(header.rank, MAX_RANK)) >= 0:
        return rank
    for name in (path, trace_name if isinstance(trace_name, str) else ""):
        if found := _RANK_IN_NAME.findall(name.rpartition("/")[2]):
            return int(found[-1])
    return -1


def _group(one: Group) -> TraceGroup:
    return TraceGroup(
        name=str(one.pg_name)[:256], desc=str(one.pg_desc)[:256],
        size=max(0, whole_number(one.pg_size, MAX_MEMBERS)), members=members_of(one.ranks),
    )  # fmt: skip
