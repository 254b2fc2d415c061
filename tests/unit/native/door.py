"""The C door for test processes, standard library only: each test records in its own process."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "src/comminsight/_native/libnccl-profiler-comminsight.so"

COLLECTIVE, P2P = 1, 2
ALL_REDUCE, BARRIER, SEND, RECV = 1, 9, 10, 11
OPEN, OVERDUE, DONE, FAILED, ABORTED, UNOBSERVABLE = 1, 2, 3, 4, 5, 6
HOST_FUTURE, GLOO = 1, 2

STATS = (
    "ops_begun", "records_pushed", "ops_recorded", "ops_in_flight", "lost", "drained_seq",
    "drain_ticks", "slot_scans", "producer_wakes", "segments_sealed", "segment_errno",
    "peers_unplaced", "slots_recycled", "fork_depth", "forked_ops", "markers_lost",
)  # fmt: skip
LOSS_SUM = 64


class Door:
    """Typed access to the functions of ``native/comminsight.h``."""

    def __init__(self) -> None:
        lib = ctypes.PyDLL(str(LIBRARY))
        u8, u16, u32, u64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
        i32, i64, text = ctypes.c_int32, ctypes.c_int64, ctypes.c_char_p
        signatures = {
            "ci_comm_register": (u32, u64, text, text, i32, i32, text, u8, u32),
            "ci_comm_retire": (None, u32),
            "ci_op_begin_args": (u64, u32, u8, u8, u8, u8, i64, i64, i32, u16, u32),
            "ci_op_launched": (None, u64),
            "ci_op_end": (i32, u64, u8, u8),
            "ci_loss": (None, u32, u8, u32),
            "ci_drain_marker": (None,),
            "ci_flush": (i32, i32),
            "ci_close": (i32,),
            "ci_identity": (None, text, text),
            "ci_stat": (i64, i32),
            "ci_box_path": (text,),
            "ci_segment_path": (text,),
            "ci_inert_reason": (text,),
        }
        for name, (result, *arguments) in signatures.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        self.lib = lib

    def register(self, comm_hash=1, rank=0, size=2, members=b"0-1", name=b"name", desc=b"desc"):
        return self.lib.ci_comm_register(comm_hash, name, desc, rank, size, members, GLOO, 22103)

    def begin(self, comm, op=ALL_REDUCE, *, kind=COLLECTIVE, size_bytes=4096, peer=-1):
        return self.lib.ci_op_begin_args(
            comm, kind, op, 9, 1, size_bytes // 4, size_bytes, peer, 0, 0
        )

    def end(self, handle, state=DONE):
        return self.lib.ci_op_end(handle, state, HOST_FUTURE)

    def ops(self, comm, count, **kind):
        """``count`` finished ops; how many of them were recorded."""
        return sum(self.end(self.begin(comm, **kind)) for _ in range(count))

    def flush(self):
        return self.lib.ci_flush(10_000)

    def close(self):
        return self.lib.ci_close()

    def stats(self):
        counts = {name: self.lib.ci_stat(i) for i, name in enumerate(STATS)}
        return counts | {"by_reason": [self.lib.ci_stat(LOSS_SUM + reason) for reason in range(16)]}

    @property
    def box(self):
        return self.lib.ci_box_path().decode()

    @property
    def segment(self):
        return self.lib.ci_segment_path().decode()

    @property
    def inert(self):
        return self.lib.ci_inert_reason().decode()


def tell(**values: object) -> None:
    """One JSON line to the test, in one write."""
    os.write(1, (json.dumps(values) + "\n").encode())


def wait() -> None:
    """Stop until the test says go on."""
    sys.stdin.readline()
