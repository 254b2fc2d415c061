"""communication.json and communication_matrix.json of Ascend's profiler, of one rank.

Times are milliseconds but for the start, sizes are millions of bytes. What is written of a link is
what went over it, in this rank's own numbering of the group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import msgspec

from comminsight.errors import InputError
from comminsight.format.ascend import NEXT_STEP, AscendRank, call_of, nanoseconds, op_of_hccl
from comminsight.format.expanding import expanded
from comminsight.format.kineto_events import whole_number
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.device_trace import SliceSource, TraceGroup, TraceSlice
from comminsight.model.ops import Op
from comminsight.model.ranges import range_expand

MAX_DOCUMENT_BYTES = 1 << 28
TOTAL = "Total Op Info"
LOCAL = "LOCAL"  # copies within the device: no link
_NS_PER_MS, _BYTES_PER_MB = 1e6, 1e6
_TOTAL = "-total"
_KINDS = ("p2p", "collective")


def is_communication(head: bytes) -> bool:
    """Whether a file that begins so tells of the communication ops of one rank."""
    return (
        _begins(head) and b'"Communication Time Info"' in head and b'"Start Timestamp(us)"' in head
    )


def is_communication_matrix(head: bytes) -> bool:
    """Whether a file that begins so tells of the links of one rank."""
    return _begins(head) and b'"Transport Type"' in head and b'"Transit Size(MB)"' in head


def read_communication(
    stream: BinaryIO, rank: AscendRank, *, path: str = ""
) -> tuple[list[TraceSlice], int]:
    """The communication ops as slices, and the number of those whose times are none.

    Raises InputError naming the file for what is no such document.
    """
    slices, n_unusable = [], 0
    for step, _, name, said in _entries(_document(stream, path)):
        times = said.get("Communication Time Info")
        if name.startswith(TOTAL) or not isinstance(times, dict):
            continue
        start = nanoseconds(times.get("Start Timestamp(us)"))
        length = _whole(times.get("Elapse Time(ms)"), _NS_PER_MS)
        if start is None or length < 0:
            n_unusable += 1
            continue
        own, _, group = name.partition("@")
        slices.append(TraceSlice(
            source=SliceSource.KERNEL, name=own[:1024], start_ns=start, end_ns=start + length,
            step=step, call=call_of(own, group[:256], rank),
        ))  # fmt: skip
    return slices, n_unusable


def read_communication_matrix(
    stream: BinaryIO, rank: AscendRank, *, path: str = ""
) -> tuple[BandwidthRow, ...]:
    """One row for each link and kind of op: its bytes over its time, by transport; copies within a
    device are left out. ``ranks`` are global where the group is known, else ().

    Raises InputError naming the file for what is no such document.
    """
    rows = []
    entries = list(_entries(_document(stream, path)))
    ops = {(step, name): _op_named(links) for step, _, name, links in entries}
    for step, _, name, links in entries:
        op, _, group = name.partition("@")
        if not op.endswith(_TOTAL):  # the others are single ops of the same
            continue
        best = f"{op.removesuffix(_TOTAL)}-top1@{group}"
        known = rank.groups.get(group, TraceGroup(name=group))
        for pair, link in links.items():
            row = _link(link)
            if row is not None:
                rows.append(msgspec.structs.replace(
                    row, op=ops.get((step, best), Op.UNKNOWN), ranks=_pair(pair, known),
                    comm_label=f"{known.desc or known.name}", first_step=step, last_step=step,
                ))  # fmt: skip
    return tuple(rows)


def _begins(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def _document(stream: BinaryIO, path: str) -> Mapping[str, Any]:
    pieces = expanded(stream, max_bytes=MAX_DOCUMENT_BYTES, path=path, next_step=NEXT_STEP)
    try:
        return msgspec.json.decode(b"".join(pieces), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is no whole JSON: {error}", path=path, next_step=NEXT_STEP) from error


def _entries(document: Mapping[str, Any]) -> Iterator[tuple[int, str, str, Mapping[str, Any]]]:
    """(step, kind, name, what is said of it)."""
    for step, kinds in document.items():
        number = whole_number(step.removeprefix("step"), 1 << 31)
        for kind in _KINDS:
            own = kinds.get(kind) if isinstance(kinds, dict) else None
            for name, said in (own if isinstance(own, dict) else {}).items():
                if isinstance(said, dict):
                    yield number, kind, name, said


def _op_named(links: Mapping[str, Any]) -> Op:
    """The op that the links were used by: names of entries shorten reduceScatter to reduce."""
    for link in links.values():
        if isinstance(link, dict) and isinstance(name := link.get("Op Name"), str):
            return op_of_hccl(name)
    return Op.UNKNOWN


def _link(said: Any) -> BandwidthRow | None:
    if not isinstance(said, dict) or said.get("Transport Type") == LOCAL:
        return None
    size_bytes = _whole(said.get("Transit Size(MB)"), _BYTES_PER_MB)
    length_ns = _whole(said.get("Transit Time(ms)"), _NS_PER_MS)
    if size_bytes <= 0 or length_ns <= 0:
        return None
    return BandwidthRow(
        op=0, size_bytes=size_bytes, busbw_gbs=size_bytes / length_ns,
        transport=str(said.get("Transport Type", ""))[:64],
    )  # fmt: skip


def _pair(pair: str, group: TraceGroup) -> tuple[int, ...]:
    """The global ranks of a link such as ``0-1``, () where they are not known."""
    ends = [whole_number(one, 1 << 24) for one in pair.split("-")]
    members = range_expand(group.members)
    if len(ends) != 2 or not all(0 <= one < len(members) for one in ends):
        return ()
    return members[ends[0]], members[ends[1]]


def _whole(value: Any, factor: float) -> int:
    """``value * factor`` rounded; -1 for what is no such number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return -1
    is_number = 0 <= value < 1e15 and math.isfinite(value)
    return round(value * factor) if is_number else -1
