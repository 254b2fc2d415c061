"""Segments and boxes with other texts: the same records, right checksums, nothing of the old."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from comminsight.errors import FormatError
from comminsight.format.blackbox import parse_box
from comminsight.format.layout import FRAME_IDENTITY
from comminsight.format.rewrite import rewritten_box, rewritten_json, rewritten_segment
from comminsight.format.segment import SegmentData, read_segment
from tests.builders import InFlight, allreduce, comm_rows, frame_bytes, identity, segment_bytes
from tests.builders.box import box_bytes
from tests.builders.golden import comms, records
from tests.builders.records import comm_row
from tests.builders.segment import header_json

REAL = "amber-17"
WHO = identity(2, 8, host=REAL, run_id=f"{REAL}-job")
NAMED = comm_rows(comm_row(1, "0-6:2", me=2, comm_hash=0x11, name=REAL.encode(), desc=b"dp"))
ENVIRONMENT = {"MASTER_ADDR": REAL, "NCCL_DEBUG": "INFO"}
HEADER = header_json(WHO, environment=ENVIRONMENT)


def masked(_: str, text: str) -> str:
    return text.replace(REAL, "host-1")


def written(tmp_path: Path, data: bytes) -> SegmentData:
    path = tmp_path / "000001.ciseg"
    path.write_bytes(data)
    return read_segment(path)


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("cut_bytes", [0, 1, 40, 700])
def test_a_segment_reads_as_before_but_for_its_texts(
    tmp_path: Path, cut_bytes: int, *, sealed: bool
) -> None:
    data = segment_bytes(
        records(), NAMED, WHO, sealed=sealed, frame_records=7, header=HEADER,
        losses=np.ones((2, 16), np.int64),
    )  # fmt: skip
    data = data[: len(data) - cut_bytes]
    before, after = written(tmp_path, data), written(tmp_path, rewritten_segment(data, masked))
    assert (after.identity.host, after.identity.run_id) == ("host-1", "host-1-job")
    assert after.records.tobytes() == before.records.tobytes()
    assert after.comms["name"].tolist() == [b"host-1"]
    assert after.tally.as_dict() == before.tally.as_dict()
    assert (after.is_sealed, after.number) == (before.is_sealed, before.number)
    assert after.losses.tolist() == before.losses.tolist()
    assert after.clock_pairs.tolist() == before.clock_pairs.tolist()
    assert REAL.encode() not in rewritten_segment(data, masked)


@pytest.mark.parametrize(
    "odd",
    [
        REAL.encode() * 9,  # garbage between frames
        frame_bytes(9, REAL.encode(), 1),  # a frame of a later version
        frame_bytes(FRAME_IDENTITY, REAL.encode()),  # an identity that does not read
        frame_bytes(1, REAL.encode() * 40, 3)[:-1] + b"?",  # a checksum that is wrong
    ],
)
def test_what_nobody_can_read_becomes_zeros_and_counts_the_same(tmp_path: Path, odd: bytes) -> None:
    whole = segment_bytes(records(), NAMED, WHO, sealed=False, header=HEADER)
    data = whole + odd + frame_bytes(15)
    after = rewritten_segment(data, masked)
    assert REAL.encode() not in after
    assert written(tmp_path, after).tally.as_dict() == written(tmp_path, data).tally.as_dict()


def test_nothing_changes_where_nothing_is_rewritten(tmp_path: Path) -> None:
    data = segment_bytes(records(), comms(), WHO)
    again = rewritten_segment(data, lambda _, text: text)
    before, after = written(tmp_path, data), written(tmp_path, again)
    assert after.records.tobytes() == before.records.tobytes()
    assert after.comms.tobytes() == before.comms.tobytes()
    assert after.identity == before.identity


@pytest.mark.parametrize("cut_bytes", [10, 64, 200])
def test_a_segment_without_its_header_is_refused(cut_bytes: int) -> None:
    with pytest.raises(FormatError):
        rewritten_segment(segment_bytes(records(), comms(), WHO)[:cut_bytes], masked)


def test_a_box_reads_as_before_but_for_its_texts() -> None:
    hanging = InFlight(allreduce(0, 720.0, op_seq=19, match_seq=19), owner_tid=1002)
    data = box_bytes(records(), NAMED, WHO, in_flight=(hanging,), losses={(1, 3): 12})
    fresh = rewritten_box(data, None, masked)
    before, after = parse_box(data), parse_box(fresh)
    assert after.identity.host == "host-1"
    assert after.comms["name"].tolist() == [b"host-1"]
    assert after.ring.tobytes() == before.ring.tobytes()
    assert after.in_flight.tobytes() == before.in_flight.tobytes()
    assert after.losses.tolist() == before.losses.tolist()
    assert (after.overwritten_seq, after.is_closed) == (before.overwritten_seq, before.is_closed)
    assert REAL.encode() not in fresh


def test_what_a_box_holds_outside_of_its_tables_is_left_out() -> None:
    data = bytearray(box_bytes(records(), NAMED, WHO))
    data[3000 : 3000 + len(REAL)] = REAL.encode()  # the header page, behind its fields
    assert REAL.encode() not in rewritten_box(bytes(data), None, masked)


def test_rows_that_two_reads_differ_in_are_empty() -> None:
    first = box_bytes(records()[:-1], NAMED, WHO)
    second = box_bytes(records(), NAMED, WHO)
    after = parse_box(rewritten_box(first, second, masked))
    assert after.ring["seq"].tolist() == records()[:-1]["seq"].tolist()


def test_texts_that_grow_beyond_the_room_of_a_box_cost_its_environment() -> None:
    def longer(_: str, text: str) -> str:
        return text.replace(REAL, "h" * 5000)

    who = header_json(WHO, environment={f"V{n}": REAL for n in range(9)})
    data = bytearray(box_bytes(records(), NAMED, WHO))
    text = json.dumps(who).encode()
    data[4096 : 4096 + len(text)] = text
    data[108:112] = len(text).to_bytes(4, "little")
    after = parse_box(rewritten_box(bytes(data), None, longer))
    assert after.environment == {}
    assert after.identity.host == "h" * 5000


def test_layouts_and_ids_in_json_are_never_touched() -> None:
    text = b'{"layout":{"fields":["ab"]},"boot_id":"ab","host":"ab","list":["ab",{"ab c":1}]}'
    after = rewritten_json(text, lambda key, old: f"<{key}>" if "ab" in old else old)
    assert after == (
        b'{"layout":{"fields":["ab"]},"boot_id":"ab","host":"<host>","list":["<list>",{"<>":1}]}'
    )
    with pytest.raises(FormatError):
        rewritten_json(b"[", masked)
