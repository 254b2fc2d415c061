"""The op record (128 bytes) and the communicator row (512 bytes): the authority for both layouts.

The same bytes stand in the shared-memory ring, in the in-flight slots and in the segment files;
``native/wire.h`` is generated from here (``tools/gen_wire.py``), committed and drift-checked. All
64-bit fields are signed, because ``uint64 - int64`` becomes float64 in numpy and loses
nanoseconds; ``comm_hash`` is the exception, since nobody does arithmetic on it. 0 = unknown; only
``peer_or_root``, ``comm_rank`` use -1, since rank 0 exists.

Sequences: ``seq`` counts arrivals in the process from 1 (a gap is loss); ``op_seq`` counts every
op of the communicator on this rank from 1, in program order; ``match_seq`` counts from 1 and is
what ranks match on: collectives = nth collective of the communicator, P2P = nth op with this peer
in this direction; ``func_seq`` is the library's own counter, evidence only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

OP_RECORD_BYTES = 128
COMM_ROW_BYTES = 512

OP_FIELDS: tuple[tuple[str, str, int], ...] = (
    ("seq", "<i8", 0),
    ("enqueue_ns", "<i8", 8),
    ("start_ns", "<i8", 16),
    ("end_ns", "<i8", 24),
    ("gpu_start_ns", "<i8", 32),
    ("gpu_end_ns", "<i8", 40),
    ("count", "<i8", 48),
    ("size_bytes", "<i8", 56),
    ("user_tag", "<i8", 64),
    ("comm_index", "<u4", 72),
    ("peer_or_root", "<i4", 76),
    ("op_seq", "<u4", 80),
    ("match_seq", "<u4", 84),
    ("func_seq", "<u4", 88),
    ("group_id", "<u4", 92),
    ("stream_id", "<u4", 96),
    ("clock_error_ns", "<u4", 100),
    ("flags", "<u2", 104),
    ("n_folded", "<u2", 106),
    ("kind", "u1", 108),
    ("op", "u1", 109),
    ("dtype", "u1", 110),
    ("red_op", "u1", 111),
    ("algo", "u1", 112),
    ("proto", "u1", 113),
    ("state", "u1", 114),
    ("timing_source", "u1", 115),
    ("n_channels", "u1", 116),
    ("channels_started", "u1", 117),
    ("channels_stopped", "u1", 118),
    ("reason", "u1", 119),
    ("reserved", "<u4", 120),
    ("seq_low", "<u4", 124),
)

COMM_FIELDS: tuple[tuple[str, str, int], ...] = (
    ("comm_hash", "<u8", 0),
    ("created_ns", "<i8", 8),
    ("first_op_ns", "<i8", 16),
    ("comm_index", "<u4", 24),
    ("ordinal", "<u4", 28),
    ("comm_rank", "<i4", 32),
    ("comm_size", "<i4", 36),
    ("n_nodes", "<i4", 40),
    ("lib_version", "<u4", 44),
    ("backend", "u1", 48),
    ("abi_version", "u1", 49),
    ("flags", "<u2", 50),
    ("device_number", "<u4", 52),  # CUDA ordinal + 1
    ("retired_ns", "<i8", 56),
    ("name", "S64", 64),
    ("desc", "S64", 128),
    ("members", "S304", 192),
    ("pci_bus_id", "S16", 496),
)

# A NET record read by the names of what it holds; same size, same place of kind, seq and join keys.
# Times are CLOCK_MONOTONIC; bytes are of this rank's network transfers for one op.
NET_FIELDS: tuple[tuple[str, str, int], ...] = (
    ("seq", "<i8", 0),
    ("first_event_ns", "<i8", 8),  # first proxy op taken up
    ("start_ns", "<i8", 16),  # of the op
    ("last_event_ns", "<i8", 24),  # last proxy op stopped, 0: some never did
    ("posted_bytes", "<i8", 32),
    ("transmitted_bytes", "<i8", 40),
    ("done_bytes", "<i8", 48),
    ("progress_ns", "<i8", 56),  # last event that moved anything
    ("n_send_steps", "<u4", 64),
    ("n_recv_steps", "<u4", 68),
    ("comm_index", "<u4", 72),
    ("wait_side", "<u4", 76),  # WaitSide, at the end
    ("op_seq", "<u4", 80),
    ("match_seq", "<u4", 84),
    ("n_proxy_ops", "<u4", 88),
    ("n_proxy_ops_done", "<u4", 92),
    ("gpu_wait_us", "<u4", 96),  # time with some send step waiting for the local GPU
    ("peer_wait_us", "<u4", 100),  # ... for credit of the receiver
    ("flags", "<u2", 104),
    ("kind", "u1", 108),
    ("op", "u1", 109),
    ("state", "u1", 114),
    ("network_wait_us", "<u4", 116),  # ... for the network: posted, not completed
    ("arrival_wait_us", "<u4", 120),  # time with some receive step waiting for data
    ("seq_low", "<u4", 124),
)

# A NOTICE record. CONTROL and OVERHEAD_GUARD say what is recorded from now on, COUNTERS what the
# NCCL door has counted so far; unused fields are 0.
NOTICE_FIELDS: tuple[tuple[str, str, int], ...] = (
    ("seq", "<i8", 0),
    ("enqueue_ns", "<i8", 8),
    ("start_ns", "<i8", 16),
    ("end_ns", "<i8", 24),
    ("callback_ns", "<i8", 32),  # COUNTERS: time measured inside callbacks of sampled ops
    ("n_sampled_ops", "<i8", 40),
    ("event_mask", "<i8", 48),
    ("min_size_bytes", "<i8", 56),
    ("is_recording", "<i8", 64),
    ("comm_index", "<u4", 72),  # 0
    ("n_stale_events", "<u4", 80),  # for an op that is over
    ("profiler_mask", "<u4", 84),  # NCCL event types asked for
    ("n_foreign_events", "<u4", 88),  # proxy ops of another process
    ("n_unknown_events", "<u4", 92),  # types, states or handles that are not known
    ("n_captured_calls", "<u4", 96),  # calls while a graph was captured: they run at replay
    ("n_untracked_groups", "<u4", 100),  # group tables were full: no launch stamps, no folding
    ("flags", "<u2", 104),
    ("kind", "u1", 108),
    ("state", "u1", 114),
    ("reason", "u1", 119),  # NoticeReason
    ("seq_low", "<u4", 124),
)


def _dtype(fields: tuple[tuple[str, str, int], ...], itemsize_bytes: int) -> np.dtype[Any]:
    return np.dtype(
        {
            "names": [name for name, _, _ in fields],
            "formats": [form for _, form, _ in fields],
            "offsets": [offset for _, _, offset in fields],
            "itemsize": itemsize_bytes,
        }
    )


OP_DTYPE = _dtype(OP_FIELDS, OP_RECORD_BYTES)
NET_DTYPE = _dtype(NET_FIELDS, OP_RECORD_BYTES)
NOTICE_DTYPE = _dtype(NOTICE_FIELDS, OP_RECORD_BYTES)
COMM_DTYPE = _dtype(COMM_FIELDS, COMM_ROW_BYTES)

UNBOUNDED_NS = (1 << 32) - 1  # a clock_error_ns that says that nothing bounds the mapping
COMM_FLAG_MEMBERS_TRUNCATED = 1  # the member list did not fit; members join in the catalog


def empty_batch() -> np.ndarray:
    """A batch of no records."""
    return np.empty(0, OP_DTYPE)


def take_rows(batch: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``batch[rows]`` for row numbers, some forty times faster.

    Indexing a structured array moves field by field; here whole records move as words.
    """
    return _words(batch).take(rows, axis=0).reshape(-1).view(OP_DTYPE)


def concatenate_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The parts one after the other, moved as ``take_rows`` moves them; a copy."""
    if not parts:
        return empty_batch()
    return np.concatenate([_words(part) for part in parts]).reshape(-1).view(OP_DTYPE)


def _words(batch: np.ndarray) -> np.ndarray:
    """The records as ``(n_records, 16)`` int64."""
    return np.ascontiguousarray(batch).view(np.int64).reshape(-1, OP_RECORD_BYTES // 8)
