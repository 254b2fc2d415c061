"""Builders of inputs: batches of records, communicator rows, segment files and black boxes.

The bytes are put together here from the layout tables alone, so that readers are tested against
the written format and not against a writer of the same code.
"""

from tests.builders.box import InFlight, box_bytes
from tests.builders.records import (
    MS,
    Stream,
    allgather,
    allreduce,
    barrier,
    broadcast,
    comm_row,
    comm_rows,
    drain,
    fold,
    identity,
    net_summary,
    notice,
    open_marker,
    ops,
    overdue_marker,
    record,
    recv,
    reducescatter,
    send,
    unseen_end,
)
from tests.builders.segment import frame_bytes, header_json, segment_bytes, write_segment

__all__ = [
    "MS",
    "InFlight",
    "Stream",
    "allgather",
    "allreduce",
    "barrier",
    "box_bytes",
    "broadcast",
    "comm_row",
    "comm_rows",
    "drain",
    "fold",
    "frame_bytes",
    "header_json",
    "identity",
    "net_summary",
    "notice",
    "open_marker",
    "ops",
    "overdue_marker",
    "record",
    "recv",
    "reducescatter",
    "segment_bytes",
    "send",
    "unseen_end",
    "write_segment",
]
