"""Byte layouts of the black box and of segment files, as numpy dtypes (little-endian).

Together with ``model.event`` this is the authority that ``tools/gen_wire.py`` turns into
``native/wire.h`` and into the tables of ``docs/formats.md``. See that page for the laws (who
writes, who reads, in which order).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from comminsight.model.event import COMM_ROW_BYTES, OP_DTYPE, OP_RECORD_BYTES

Fields = tuple[tuple[str, Any, int], ...]

FORMAT_MAJOR = 1  # readers refuse an unknown major
FORMAT_MINOR = 1  # readers accept any minor: fields are only added

BOX_MAGIC = b"CIBBOX\r\n"
SEGMENT_MAGIC = b"CISEGM\r\n"
FRAME_MAGIC = 0x52464943  # "CIFR"

BOX_HEADER_BYTES = 4096
BOX_JSON_BYTES = 16384
COMM_CAPACITY = 512
SLOT_BYTES = 256
SLOT_CAPACITY = 4096
RING_CAPACITY = 8192
LOSS_REASONS = 16
LOSS_ROW_BYTES = 8 * LOSS_REASONS
SEGMENT_HEADER_BYTES = 64
FRAME_HEADER_BYTES = 48

BOX_JSON_OFFSET = BOX_HEADER_BYTES
BOX_COMM_OFFSET = BOX_JSON_OFFSET + BOX_JSON_BYTES
BOX_LOSS_OFFSET = BOX_COMM_OFFSET + COMM_CAPACITY * COMM_ROW_BYTES
BOX_SLOT_OFFSET = BOX_LOSS_OFFSET + COMM_CAPACITY * LOSS_ROW_BYTES
BOX_RING_OFFSET = BOX_SLOT_OFFSET + SLOT_CAPACITY * SLOT_BYTES
BOX_BYTES = BOX_RING_OFFSET + RING_CAPACITY * OP_RECORD_BYTES

# BoxState
BOX_CREATING, BOX_LIVE, BOX_CLOSED = 0, 1, 2

# state byte of a slot's state word (generation << 8 | state)
SLOT_FREE, SLOT_CLAIMED, SLOT_IN_FLIGHT, SLOT_OVERDUE, SLOT_ENDING = 0, 1, 2, 3, 4

# frame types
FRAME_OPS, FRAME_COMMS, FRAME_LOSSES, FRAME_IDENTITY, FRAME_END = 1, 2, 3, 4, 15

BOX_HEADER_FIELDS: Fields = (
    ("magic", "S8", 0),
    ("major", "<u2", 8),
    ("minor", "<u2", 10),
    ("header_bytes", "<u4", 12),
    ("file_bytes", "<i8", 16),
    ("pid", "<i8", 24),
    ("pid_start_ticks", "<i8", 32),
    ("created_mono_ns", "<i8", 40),
    ("created_real_ns", "<i8", 48),
    ("uid", "<u4", 56),
    ("state", "<u4", 60),
    ("boot_id", "S40", 64),
    ("salt", "<u4", 104),
    ("json_bytes", "<u4", 108),
    ("json_offset", "<u4", 112),
    ("comm_offset", "<u4", 116),
    ("comm_capacity", "<u4", 120),
    ("loss_offset", "<u4", 124),
    ("slot_offset", "<u4", 128),
    ("slot_capacity", "<u4", 132),
    ("slot_bytes", "<u4", 136),
    ("ring_offset", "<u4", 140),
    ("ring_capacity", "<u4", 144),
    ("record_bytes", "<u4", 148),
    ("comm_row_bytes", "<u4", 152),
    ("loss_reasons", "<u4", 156),
    # written while alive, each on its own cache line
    ("ring_head", "<i8", 256),  # records ever written = seq of the newest
    ("comm_count", "<u4", 320),  # rows published (release store after the row's bytes)
    ("heartbeat_mono_ns", "<i8", 384),
    ("pair_mono_ns", "<i8", 392),
    ("pair_real_ns", "<i8", 400),
    ("drained_seq", "<i8", 408),  # newest record that is in a segment
    ("segment_errno", "<u4", 416),
    ("drain_running", "<u4", 420),
    ("overdue_slots", "<u4", 424),  # slots now in state OVERDUE: what a watcher polls
    # control words: written by agent or run, read and clamped by the drain thread
    ("control_generation", "<u4", 512),
    ("control_enabled", "<u4", 516),
    ("control_event_mask", "<u4", 520),
    ("control_profiler_mask", "<u4", 524),  # NCCL event types to ask for; 0: none
    ("control_min_size_bytes", "<i8", 528),
    ("control_overdue_limit_ns", "<i8", 536),
    ("control_safe_window_ns", "<i8", 544),
    # what is in force (clamped copy)
    ("active_generation", "<u4", 576),
    ("active_enabled", "<u4", 580),
    ("active_event_mask", "<u4", 584),
    ("active_profiler_mask", "<u4", 588),
    ("active_min_size_bytes", "<i8", 592),
    ("active_overdue_limit_ns", "<i8", 600),
    ("active_safe_window_ns", "<i8", 608),
    # counters of the NCCL door, as in a NOTICE record of reason COUNTERS
    ("nccl_stale_events", "<i8", 640),
    ("nccl_foreign_events", "<i8", 648),
    ("nccl_unknown_events", "<i8", 656),
    ("nccl_captured_calls", "<i8", 664),
    ("nccl_untracked_groups", "<i8", 672),
    ("nccl_callback_ns", "<i8", 680),
    ("nccl_sampled_ops", "<i8", 688),
)

SLOT_FIELDS: Fields = (
    ("record", OP_DTYPE, 0),
    ("state_word", "<u4", 128),  # generation << 8 | state byte, claimed by CAS
    ("owner_tid", "<u4", 132),
    ("launch_ns", "<i8", 136),
    ("callback_ns", "<i8", 144),
    ("started_mask", "<u8", 152),
    ("stopped_mask", "<u8", 160),
    ("net_posted_bytes", "<i8", 168),
    ("net_transmitted_bytes", "<i8", 176),
    ("net_done_bytes", "<i8", 184),
    ("net_progress_ns", "<i8", 192),
    ("marker_ns", "<i8", 200),  # when the OPEN marker was written
    ("overdue_ns", "<i8", 208),  # when the OVERDUE marker was written
    ("wait_side", "<u4", 216),  # WaitSide: byte 0 sends, byte 1 receives
    ("slot_flags", "<u4", 220),  # SlotFlag
    # of a fold: bit i set: peers [i * g, (i + 1) * g) are unfinished, g = ceil(size / 256)
    ("pending_peers_0", "<u8", 224),
    ("pending_peers_1", "<u8", 232),
    ("pending_peers_2", "<u8", 240),
    ("pending_peers_3", "<u8", 248),
)

SEGMENT_HEADER_FIELDS: Fields = (
    ("magic", "S8", 0),
    ("major", "<u2", 8),
    ("minor", "<u2", 10),
    ("header_bytes", "<u4", 12),  # 64 + json_bytes: the first frame starts here
    ("json_bytes", "<u4", 16),
    ("json_crc32", "<u4", 20),
    ("segment_number", "<u4", 24),
    ("record_bytes", "<u4", 28),
    ("created_mono_ns", "<i8", 32),
    ("created_real_ns", "<i8", 40),
)

FRAME_HEADER_FIELDS: Fields = (
    ("magic", "<u4", 0),
    ("type", "u1", 4),
    ("n_items", "<u4", 8),
    ("payload_bytes", "<u4", 12),
    ("mono_ns", "<i8", 16),
    ("real_ns", "<i8", 24),
    ("first_seq", "<i8", 32),
    ("crc32", "<u4", 40),  # zlib CRC-32 of this header with crc32 = 0, then the payload
)


def _dtype(fields: Fields, itemsize_bytes: int) -> np.dtype[Any]:
    return np.dtype(
        {
            "names": [name for name, _, _ in fields],
            "formats": [form for _, form, _ in fields],
            "offsets": [offset for _, _, offset in fields],
            "itemsize": itemsize_bytes,
        }
    )


BOX_HEADER_DTYPE = _dtype(BOX_HEADER_FIELDS, BOX_HEADER_BYTES)
SLOT_DTYPE = _dtype(SLOT_FIELDS, SLOT_BYTES)
SEGMENT_HEADER_DTYPE = _dtype(SEGMENT_HEADER_FIELDS, SEGMENT_HEADER_BYTES)
FRAME_HEADER_DTYPE = _dtype(FRAME_HEADER_FIELDS, FRAME_HEADER_BYTES)
LOSS_ROW_DTYPE = np.dtype((np.int64, (LOSS_REASONS,)))
