"""Files written by version 1.0 stay readable, and mean the same."""

from __future__ import annotations

import json
from pathlib import Path

import zstandard

from comminsight.format.blackbox import parse_box
from comminsight.format.layout import BOX_JSON_BYTES, BOX_JSON_OFFSET, FORMAT_MINOR
from comminsight.format.segment import read_segment
from comminsight.model.event import COMM_FIELDS, OP_FIELDS
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


def body(data: bytes) -> bytes:
    """A segment without its header, which names version and layouts."""
    return data[int.from_bytes(data[12:16], "little") :]


def test_the_layout_of_version_1_0_has_not_moved() -> None:
    """Fields were only added: where 1.0 had nothing, this version has zeros."""
    assert body(golden.SEGMENT.read_bytes()) == body(golden.segment_file())
    old = bytearray(zstandard.decompress(golden.BOX.read_bytes()))
    new = bytearray(golden.box_file())
    assert (old[10:12], new[10:12]) == (b"\0\0", FORMAT_MINOR.to_bytes(2, "little"))
    for data in (old, new):
        for begin, n_bytes in ((10, 2), (108, 4), (BOX_JSON_OFFSET, BOX_JSON_BYTES)):
            data[begin : begin + n_bytes] = bytes(n_bytes)  # minor version, the JSON and its length
    assert old == new


def test_fields_of_version_1_0_are_where_they_were() -> None:
    """What was ``reserved`` has a name; the device's bus id took 16 bytes of the member list."""
    data = golden.SEGMENT.read_bytes()
    header = json.loads(data[64 : int.from_bytes(data[12:16], "little")])
    ops = {tuple(field) for field in header["layout"]["fields"]}
    assert ops <= {(name, form.lstrip("|"), at) for name, form, at in OP_FIELDS}
    rows = {name: (form, at) for name, form, at in header["comm_layout"]["fields"]}
    now = {name: (form.lstrip("|"), at) for name, form, at in COMM_FIELDS}
    assert rows.pop("members") == ("S320", now["members"][1])
    assert rows.pop("reserved") == now["device_number"]
    assert rows.items() <= now.items()
