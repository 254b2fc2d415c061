from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.errors import FormatError
from comminsight.format.blackbox import parse_box
from comminsight.format.layout import (
    BOX_CLOSED,
    BOX_CREATING,
    BOX_RING_OFFSET,
    BOX_SLOT_OFFSET,
    RING_CAPACITY,
    SLOT_CLAIMED,
    SLOT_ENDING,
    SLOT_OVERDUE,
)
from comminsight.model.ops import LossReason, NoticeReason, OpState
from tests.builders import (
    InFlight,
    allreduce,
    box_bytes,
    comm_row,
    comm_rows,
    identity,
    net_summary,
    notice,
    ops,
    send,
)

RECORD = 128


def numbered(first: int, last: int) -> np.ndarray:
    rows = np.repeat(allreduce(1, 1.0), max(0, last - first + 1))
    rows["seq"] = rows["seq_low"] = np.arange(first, first + len(rows))
    return rows


def at_ring(seq: int) -> int:
    return BOX_RING_OFFSET + (seq - 1) % RING_CAPACITY * RECORD


def test_all_parts_come_back() -> None:
    who, comms = identity(2), comm_rows(comm_row(1), comm_row(2, "0,2"))
    hanging = InFlight(allreduce(0, 30.0, op_seq=4, match_seq=4), owner_tid=99, launch_ns=7)
    late = InFlight(send(0, 20.0, comm=2, peer=1, op_seq=9), state=SLOT_OVERDUE)
    losses = {(0, LossReason.FORKED): 2, (2, LossReason.SLOTS_FULL): 3}
    box = parse_box(
        box_bytes(numbered(1, 5), comms, who, in_flight=(hanging, late), losses=losses,
                  drained_seq=4, heartbeat_mono_ns=123)
    )  # fmt: skip
    assert box.identity == who
    assert np.array_equal(box.comms, comms)
    assert np.array_equal(box.ring, numbered(1, 5))
    assert box.in_flight["record"]["op_seq"].tolist() == [9, 4]
    assert box.in_flight["record"]["state"].tolist() == [OpState.OVERDUE, OpState.OPEN]
    assert box.in_flight["owner_tid"].tolist() == [77, 99]
    assert box.losses.shape == (3, 16)
    assert (box.losses[0, LossReason.FORKED], box.losses[2, LossReason.SLOTS_FULL]) == (2, 3)
    assert (box.drained_seq, box.heartbeat_mono_ns, box.is_closed) == (4, 123, False)
    assert (len(box.torn_seqs), box.overwritten_seq) == (0, 0)


def test_network_summaries_and_notices_are_read_as_they_are() -> None:
    """Their fields stand where an op's do, and are not taken for impossible ones."""
    rows = ops(
        allreduce(1, 1.0),
        net_summary(allreduce(1, 1.0), 2, wait_side=0xFFFFFFFF, arrival_wait_us=0xFFFFFFFF,
                    network_wait_us=0xFFFFFFFF, n_recv_steps=1 << 30),
        notice(3, 2.0, NoticeReason.COUNTERS, n_captured_calls=0xFFFFFFFF),
    )  # fmt: skip
    box = parse_box(box_bytes(rows, nccl_captured_calls=4, nccl_callback_ns=9))
    assert np.array_equal(box.ring, rows)
    assert box.tally["segment_records_bad"] == 0
    assert box.nccl_counters == {"captured_calls": 4, "callback_ns": 9}


def test_a_ring_that_went_round_holds_the_newest_records() -> None:
    last = RING_CAPACITY + 100
    box = parse_box(box_bytes(numbered(101, last)))
    assert np.array_equal(box.ring, numbered(101, last))
    assert box.overwritten_seq == 100


def test_slots_that_are_free_or_claimed_hold_no_op() -> None:
    op = allreduce(0, 1.0)
    slots = (InFlight(op, state=SLOT_CLAIMED), InFlight(op))
    assert len(parse_box(box_bytes(ops(), in_flight=slots)).in_flight) == 1


def test_an_op_whose_end_was_cut_off_is_in_flight_until_its_record_stands_in_the_ring() -> None:
    ended, cut_off = numbered(1, 1), numbered(2, 2)
    ended["op_seq"], cut_off["op_seq"] = 1, 2
    slots = tuple(InFlight(op, state=SLOT_ENDING) for op in (ended, cut_off))
    box = parse_box(box_bytes(ended, in_flight=slots))
    assert box.in_flight["record"]["op_seq"].tolist() == [2]


@pytest.mark.parametrize(
    ("offset", "change"),
    [(0, b"\xff" * 8), (0, b"\x07"), (124, b"\x09"), (127, b"\x80")],
    ids=["being written", "other number", "other low half", "half overwritten"],
)
def test_a_torn_record_is_left_out_and_named(offset: int, change: bytes) -> None:
    data = bytearray(box_bytes(numbered(1, 10)))
    data[at_ring(4) + offset : at_ring(4) + offset + len(change)] = change
    box = parse_box(bytes(data))
    assert box.ring["seq"].tolist() == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert box.torn_seqs.tolist() == [4]


def test_only_what_two_reads_agree_on_is_believed() -> None:
    hanging = (InFlight(allreduce(0, 1.0)), InFlight(allreduce(0, 2.0)))
    first = box_bytes(numbered(1, 10), in_flight=hanging)
    second = bytearray(first)
    second[at_ring(4) + 24] ^= 1
    second[BOX_SLOT_OFFSET + 256 + 40] ^= 1
    box = parse_box(first, bytes(second))
    assert 4 not in box.ring["seq"]
    assert box.in_flight["record"]["start_ns"].tolist() == [1_000_000]


@settings(max_examples=40, deadline=None)
@given(before=st.integers(0, 9000), between=st.integers(0, 9000))
def test_a_writer_between_the_reads_neither_invents_nor_repeats(before: int, between: int) -> None:
    """First read at ``before`` records, second after ``between`` more."""
    after = before + between
    first = box_bytes(numbered(max(1, before - RING_CAPACITY + 1), before), ring_head=before)
    second = box_bytes(numbered(max(1, after - RING_CAPACITY + 1), after), ring_head=after)
    box = parse_box(first, second)
    assert np.array_equal(box.ring, numbered(max(1, after - RING_CAPACITY + 1), before))
    assert len(box.torn_seqs) == 0


def test_a_closed_box_says_so() -> None:
    assert parse_box(box_bytes(numbered(1, 2), state=BOX_CLOSED)).is_closed


def test_impossible_records_are_dropped_and_counted() -> None:
    records = numbered(1, 3)
    records["start_ns"][1] = -5
    box = parse_box(box_bytes(records))
    assert box.ring["seq"].tolist() == [1, 3]
    assert box.tally.as_dict() == {"ring_records_read": 3, "segment_records_bad": 1}


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"magic": b"NOTABOX"}, "no black box"),
        ({"major": 9}, "format 9.1 is unknown"),
        ({"state": BOX_CREATING}, "still being created"),
        ({"ring_capacity": 2**31}, "ring table ends"),
        ({"ring_capacity": 0}, "ring table ends"),
        ({"slot_offset": 2**32 - 1}, "slot table ends"),
        ({"record_bytes": 64}, "unknown table sizes"),
        ({"slot_bytes": 128}, "unknown table sizes"),
        ({"json_bytes": 10}, "does not read"),
    ],
)
def test_other_bytes_are_refused(header: dict[str, object], reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        parse_box(box_bytes(numbered(1, 2), **header))


@pytest.mark.parametrize("size", [0, 7, 8, 100, 4095, 4096, 50_000, 2_445_311])
def test_a_box_cut_short_is_refused(size: int) -> None:
    with pytest.raises(FormatError):
        parse_box(box_bytes(numbered(1, 2))[:size])


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 700))
def test_any_header_page_is_a_box_or_a_format_error(noise: bytes, at: int) -> None:
    data = bytearray(box_bytes(numbered(1, 2)))
    data[at : at + len(noise)] = noise
    try:
        box = parse_box(bytes(data))
    except FormatError:
        return
    assert set(box.ring["seq"].tolist()) <= {1, 2}
    assert len(box.torn_seqs) <= RING_CAPACITY
