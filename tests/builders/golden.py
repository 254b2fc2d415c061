"""Files of format 1.0 that every later version must read: ``python -m tests.builders.golden``.

The bytes are committed. They are made again only to see that the builders still make the same;
a change of the format gets a folder of its own beside these.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import zstandard

from comminsight.format.layout import LOSS_REASONS, SLOT_OVERDUE
from comminsight.model.ops import LossReason
from tests.builders.box import InFlight, box_bytes
from tests.builders.records import (
    Stream,
    allreduce,
    comm_row,
    comm_rows,
    drain,
    identity,
    open_marker,
    send,
)
from tests.builders.segment import segment_bytes

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SEGMENT = GOLDEN / "segment-v1.0" / "000001.ciseg"
BOX = GOLDEN / "blackbox-v1.0" / "1002-102-1000000000.box.zst"
SHOWN = ("seq", "start_ns", "end_ns", "size_bytes", "comm_index", "peer_or_root", "op_seq",
         "match_seq", "kind", "op", "dtype", "red_op", "state")  # fmt: skip


def records() -> np.ndarray:
    """Six steps of two communicators, an op that was marked open, and a forced drain."""
    stream = Stream()
    for step in range(6):
        at_ms = 100.0 * step + 10
        stream.allgather(at_ms, 4, size=1 << 22)
        stream.send(at_ms + 5, 2, comm=2, peer=1, size=4096)
        stream.reducescatter(at_ms + 30, 6, size=1 << 22)
        if step == 2:
            stream.append(open_marker(allreduce(0, at_ms + 60, op_seq=9, match_seq=9), 0))
        stream.allreduce(at_ms + 60, 3, size=8)
    stream.append(drain(0, 700.0))
    return stream.batch()


def comms() -> np.ndarray:
    """A data-parallel group of four ranks and a pipeline pair, as rank 2 sees them."""
    return comm_rows(
        comm_row(1, "0-6:2", me=2, comm_hash=0x1111, name=b"7", desc=b"dp"),
        comm_row(2, "2,3", me=2, comm_hash=0x2222, name=b"9", desc=b"pp"),
    )


def segment_file() -> bytes:
    """The golden segment."""
    losses = np.zeros((3, LOSS_REASONS), np.int64)
    losses[1, LossReason.BELOW_MIN_SIZE] = 12
    return segment_bytes(records(), comms(), identity(2, 8), losses=losses, frame_records=10)


def box_file() -> bytes:
    """The golden black box: the tail of the same stream, two ops in flight."""
    hanging = InFlight(allreduce(0, 720.0, op_seq=19, match_seq=19), owner_tid=1002)
    late = InFlight(send(0, 710.0, comm=2, peer=1, op_seq=7, match_seq=7), state=SLOT_OVERDUE)
    return box_bytes(
        records()[10:], comms(), identity(2, 8), in_flight=(hanging, late),
        losses={(0, LossReason.FORKED): 1}, drained_seq=20, heartbeat_mono_ns=1_800_000_000,
    )  # fmt: skip


def shown(rows: np.ndarray) -> list[dict[str, int]]:
    """The fields of records that the expectation lists."""
    return [{name: int(row[name]) for name in SHOWN} for row in rows]


def main() -> None:
    """Writes the files and what they hold."""
    for path, data, rows in (
        (SEGMENT, segment_file(), records()),
        (BOX, zstandard.compress(box_file(), 19), records()[10:]),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        lines = ",\n".join(json.dumps(row) for row in shown(rows))
        (path.parent / "records.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
