"""Files written by version 1.0 stay readable, and mean the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import zstandard

from comminsight.format.blackbox import parse_box
from comminsight.format.segment import read_segment
from tests.builders import golden


def expected(path: Path) -> list[dict[str, int]]:
    rows: list[dict[str, int]] = json.loads((path.parent / "records.json").read_text())
    return rows


def test_the_segment_means_what_it_meant() -> None:
    data = read_segment(golden.SEGMENT)
    assert golden.shown(data.records) == expected(golden.SEGMENT)
    assert (data.identity.global_rank, data.identity.world_size) == (2, 8)
    assert data.identity.session_id == "b007b007-1002-102"
    assert data.comms["members"].tolist() == [b"0-6:2", b"2,3"]
    assert data.losses[1].tolist() == [0] * 6 + [12] + [0] * 9
    assert data.is_sealed
    assert data.tally.as_dict() == {"segment_records_read": 26}


def test_the_box_means_what_it_meant() -> None:
    box = parse_box(zstandard.decompress(golden.BOX.read_bytes()))
    assert golden.shown(box.ring) == expected(golden.BOX)
    assert box.in_flight["record"]["op_seq"].tolist() == [7, 19]
    assert box.in_flight["state_word"].tolist() == [0x103, 0x102]
    assert box.comms["desc"].tolist() == [b"dp", b"pp"]
    assert (box.drained_seq, box.heartbeat_mono_ns) == (20, 1_800_000_000)


def test_the_layout_of_version_1_0_has_not_moved() -> None:
    assert golden.SEGMENT.read_bytes() == golden.segment_file()
    box = np.frombuffer(zstandard.decompress(golden.BOX.read_bytes()), np.uint8)
    assert np.array_equal(box, np.frombuffer(golden.box_file(), np.uint8))
