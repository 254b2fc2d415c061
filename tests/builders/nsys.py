"""Exports of Nsight Systems and other databases, as small as their readers allow."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

Rows = tuple[str, Sequence[tuple[object, ...]]]  # the columns, and the rows of a table
EPOCH_NS = 1_700_000_000_000_000_000
NAMES = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", "gemm", "ncclAllReduce",
    "ncclGroupEnd", "ncclCommInitRank",
)  # fmt: skip
KERNEL = (
    "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, globalPid INTEGER,"
    " correlationId INTEGER, demangledName INTEGER"
)
RUNTIME = "start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER"
NVTX = (
    "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, domainId INTEGER,"
    " globalTid INTEGER, binaryData BLOB"
)
ENTRIES = "domainId INTEGER, schemaId INTEGER, idx INTEGER, type INTEGER, name TEXT, offset INTEGER"


def database(path: Path, tables: Mapping[str, Rows]) -> Path:
    """The file with these tables."""
    base = sqlite3.connect(path)
    for name, (columns, rows) in tables.items():
        base.execute(f"CREATE TABLE {name} ({columns})")
        marks = ", ".join("?" * (columns.count(",") + 1))
        base.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)  # noqa: S608
    base.commit()
    base.close()
    return path


def thread_of(process: int, thread: int = 1) -> int:
    """A thread's number as the export packs it."""
    return (process << 24) | thread


def payload(*values: int, schema: int = 9) -> bytes:
    """The binary data of a range in domain 2 with these 64-bit fields."""
    body = struct.pack(f"<{len(values)}Q", *values)
    return struct.pack("<IIIIQQ", 2, 0, schema, 0, len(body), len(body) + 32) + body


def nsys_tables(processes: Sequence[int] = (100,), *, world: int = 0) -> dict[str, Rows]:
    """Two kernels of each process on a device of its own: a GEMM, and an all-reduce of 4 MB in
    communicator 0xabc, launched within the range of its call."""
    kernels, runtime, nvtx = [], [], []
    for n, process in enumerate(processes):
        thread = thread_of(process)
        kernels += [
            (1000, 2000, n, 7, process << 24, 1, 1), (1500, 3500, n, 8, process << 24, 2, 0),
        ]  # fmt: skip
        runtime += [(900, 910, thread, 1, 1), (950, 960, thread, 2, 1)]
        nvtx.append((940, 970, 59, None, 2, 2, thread, payload(0xABC, 4 << 20)))
        if world:
            nvtx.append((10, 20, 59, None, 4, 2, thread, payload(0xABC, world, n, schema=8)))
    return {
        "StringIds": ("id INTEGER, value TEXT", list(enumerate(NAMES))),
        "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs INTEGER", [(EPOCH_NS,)]),
        "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, kernels),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (RUNTIME, runtime),
        "NVTX_EVENTS": (NVTX, nvtx),
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": (ENTRIES, [
            (2, 9, 0, 18, "NCCL communicator ID", None), (2, 9, 1, 22, "Message size [bytes]", 8),
            (2, 8, 0, 18, "NCCL communicator ID", 0), (2, 8, 1, 18, "No. of ranks", 8),
            (2, 8, 2, 18, "Rank", 16),
        ]),
    }  # fmt: skip
