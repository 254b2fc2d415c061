"""The tables of Ascend's profiler: kernel_details.csv and step_trace_time.csv.

Columns are found by name, since versions add, drop and move them.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from comminsight.errors import InputError
from comminsight.format.ascend import (
    COMMUNICATION_CORES,
    MAX_ROWS,
    NEXT_STEP,
    AscendRank,
    call_of,
    nanoseconds,
)
from comminsight.format.expanding import expanded
from comminsight.format.kineto_events import MAX_RANK, whole_number
from comminsight.model.device_trace import SliceSource, TraceSlice

MAX_TABLE_BYTES = 1 << 30
_START, _DURATION = "Start Time(us)", "Duration(us)"
_STEP_COLUMNS = {
    "Computing": "compute_ns", "Communication(Not Overlapped)": "exposed_ns",
    "Overlapped": "overlapped_ns", "Communication": "communication_ns", "Free": "free_ns",
    "Stage": "stage_ns", "Bubble": "bubble_ns", "Preparing": "preparing_ns",
}  # fmt: skip


class StepTraceTime(msgspec.Struct, frozen=True, kw_only=True):
    """What the profiler itself says of one step of one rank, ns; -1 where the column is absent.
    ``rank`` is the one of a cluster table, -1 in the table of one rank."""

    step: int = -1
    rank: int = -1
    compute_ns: int = -1
    exposed_ns: int = -1
    overlapped_ns: int = -1
    communication_ns: int = -1
    free_ns: int = -1
    stage_ns: int = -1
    bubble_ns: int = -1
    preparing_ns: int = -1


def is_kernel_details(head: bytes) -> bool:
    """Whether a file that begins so is the table of kernels."""
    line = _first_line(head)
    return _START.encode() in line and b"Accelerator Core" in line and b",Name," in line


def is_step_trace_time(head: bytes) -> bool:
    """Whether a file that begins so is the table of step times, of one rank or of a cluster."""
    line = _first_line(head)
    return b"Computing,Communication(Not Overlapped),Overlapped" in line


def read_kernel_details(
    stream: BinaryIO, rank: AscendRank, *, path: str = ""
) -> tuple[list[TraceSlice], int]:
    """The kernels and communication ops, and the number of rows whose times are none.

    Raises InputError naming the file for what is no such table, or has a column too few.
    """
    rows = _bounded(csv.reader(_lines(stream, path)), path)
    column = _columns(next(rows, []), ("Name", _START, _DURATION), path)
    name_at, start_at, length_at = column["Name"], column[_START], column[_DURATION]
    core_at, step_at, stream_at = (
        column.get(one, -1) for one in ("Accelerator Core", "Step Id", "Stream ID")
    )
    slices: list[TraceSlice] = []
    n_unusable = 0
    for row in rows:
        if not row:
            continue
        if len(row) <= max(column.values()):
            n_unusable += 1
            continue
        start, length = nanoseconds(row[start_at]), nanoseconds(row[length_at])
        if start is None or length is None:
            n_unusable += 1
            continue
        name = row[name_at][:1024]
        is_call = (core_at >= 0 and row[core_at] in COMMUNICATION_CORES) or name.startswith("hcom_")
        slices.append(TraceSlice(
            source=SliceSource.KERNEL, name=name, start_ns=start, end_ns=start + length,
            stream=max(0, whole_number(row[stream_at], 1 << 32)) if stream_at >= 0 else 0,
            step=whole_number(row[step_at], 1 << 31) if step_at >= 0 else -1,
            call=call_of(name, "", rank) if is_call else None,
        ))  # fmt: skip
    return slices, n_unusable


def read_step_trace_time(stream: BinaryIO, *, path: str = "") -> tuple[StepTraceTime, ...]:
    """The rows of single ranks, in their order; those of stages are passed over.

    Raises InputError naming the file for what is no such table.
    """
    rows = _bounded(csv.reader(_lines(stream, path)), path)
    column = _columns(next(rows, []), ("Step", "Computing"), path)
    found = []
    for row in rows:
        if len(row) <= max(column.values()):
            continue
        if "Type" in column and row[column["Type"]] != "rank":
            continue
        values = {
            own: -1 if (ns := nanoseconds(row[column[name]])) is None else ns
            for name, own in _STEP_COLUMNS.items()
            if name in column
        }
        rank = whole_number(row[column["Index"]], MAX_RANK) if "Index" in column else -1
        found.append(
            StepTraceTime(step=whole_number(row[column["Step"]], 1 << 31), rank=rank, **values)
        )
    return tuple(found)


def _first_line(head: bytes) -> bytes:
    return head.removeprefix(codecs.BOM_UTF8).partition(b"\n")[0][:4096]


def _lines(stream: BinaryIO, path: str) -> Iterator[str]:
    pieces = expanded(stream, max_bytes=MAX_TABLE_BYTES, path=path, next_step=NEXT_STEP)
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        for line in lines:
            yield line.replace("\0", "") + "\n"
    yield (rest + decoder.decode(b"", final=True)).replace("\0", "")


def _columns(names: list[str], needed: Iterable[str], path: str) -> dict[str, int]:
    column = {name.strip(): n for n, name in enumerate(names)}
    absent = [name for name in needed if name not in column]
    if absent:
        raise InputError(
            f"has no column {', '.join(absent)}", path=path, place="line 1", next_step=NEXT_STEP
        )
    return column


def _bounded(rows: Iterator[list[str]], path: str) -> Iterator[list[str]]:
    try:
        for n, row in enumerate(rows):
            if n >= MAX_ROWS:
                raise InputError(f"more than {MAX_ROWS:,} rows", path=path, next_step=NEXT_STEP)
            yield row
    except csv.Error as error:
        raise InputError(f"is no table: {error}", path=path, next_step=NEXT_STEP) from error
