from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comminsight.errors import FormatError, InputError
from comminsight.format.layout import FRAME_IDENTITY, FRAME_OPS, LOSS_REASONS
from comminsight.format.segment import SegmentData, SegmentReader, read_segment
from comminsight.model.ops import LossReason
from tests.builders import (
    Stream,
    allreduce,
    comm_row,
    comm_rows,
    frame_bytes,
    header_json,
    identity,
    ops,
    segment_bytes,
    write_segment,
)

FRAME = 4
FIXTURE = [HealthCheck.function_scoped_fixture]  # every example overwrites the same file


def small_stream(n_records: int = 10) -> np.ndarray:
    stream = Stream()
    for i in range(n_records):
        stream.allreduce(10.0 * i + 1, ms=2, size=1024 << i % 4)
    return stream.batch()


def read_bytes(directory: Path, data: bytes) -> SegmentData:
    return read_segment(write_segment(directory, data))


def losses_of(data: SegmentData) -> dict[str, int]:
    return {name: n for name, n in data.tally.items() if name != "segment_records_read"}


def test_all_parts_come_back(tmp_path: Path) -> None:
    records, comms = small_stream(), comm_rows(comm_row(1), comm_row(2, "0,2", name=b"pp"))
    who = identity(2, world_size=8, run_id="r7")
    table = np.zeros((3, LOSS_REASONS), np.int64)
    table[2, LossReason.SLOTS_FULL] = 5
    data = read_bytes(tmp_path, segment_bytes(records, comms, who, losses=table, number=3))
    assert data.identity == who
    assert data.settings["overdue_limit_ns"] == 60_000_000_000
    assert np.array_equal(data.records, records)
    assert np.array_equal(data.comms, comms)
    assert np.array_equal(data.losses, table)
    assert data.number == 3
    assert data.is_sealed
    assert data.clock_pairs[0].tolist() == [who.created_mono_ns, who.created_real_ns]
    assert data.tally.as_dict() == {"segment_records_read": len(records)}


def test_records_are_a_view_of_what_was_read(tmp_path: Path) -> None:
    records = read_bytes(tmp_path, segment_bytes(small_stream())).records
    assert records.base is not None


def test_truncation_at_every_byte_loses_at_most_one_frame(tmp_path: Path) -> None:
    records = small_stream()
    whole = segment_bytes(records, frame_records=FRAME)
    header_end = whole.index(b"CIFR")
    ends = [header_end + 560, header_end + 1120, header_end + 1424]
    path = tmp_path / "000001.ciseg"
    for size in [*range(0, header_end, 29), *range(header_end, len(whole))]:
        path.write_bytes(whole[:size])
        if size < header_end:
            with pytest.raises(FormatError):
                read_segment(path)
            continue
        data = read_segment(path)
        n_expected = min(FRAME * sum(size >= end for end in ends), len(records))
        assert np.array_equal(data.records, records[:n_expected])
        assert data.tally["segment_frames_torn"] == (size not in {header_end, *ends})
        assert data.tally["segment_frames_bad"] == 0
        assert not data.is_sealed


@settings(max_examples=150, deadline=None, suppress_health_check=FIXTURE)
@given(data=st.data())
def test_a_flipped_bit_costs_one_frame_and_is_counted(tmp_path: Path, data: st.DataObject) -> None:
    records = small_stream()
    whole = bytearray(segment_bytes(records, frame_records=FRAME))
    header_end = whole.index(b"CIFR")
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    try:
        found = read_bytes(tmp_path, bytes(whole))
    except FormatError:
        assert bit // 8 < header_end
        return
    kept = np.isin(records["seq"], found.records["seq"])
    assert np.array_equal(found.records, records[kept])
    if bit // 8 >= header_end:
        assert len(records) - kept.sum() <= FRAME
        assert found.tally["segment_frames_torn"] + found.tally["segment_frames_bad"] == 1
        assert found.tally["segment_bytes_skipped"] <= 48 + FRAME * 128


@settings(max_examples=100, deadline=None, suppress_health_check=FIXTURE)
@given(noise=st.binary(max_size=200), at=st.integers(0, 3))
def test_bytes_between_frames_are_passed_over(tmp_path: Path, noise: bytes, at: int) -> None:
    records = small_stream(12)
    frames = [frame_bytes(FRAME_OPS, chunk.tobytes(), len(chunk)) for chunk in np.split(records, 3)]
    frames.insert(at, noise)
    data = read_bytes(tmp_path, segment_bytes(records[:0], sealed=False) + b"".join(frames))
    assert np.array_equal(data.records, records)
    n_torn, n_skipped = data.tally["segment_frames_torn"], data.tally["segment_bytes_skipped"]
    assert n_torn <= (at == 3)
    assert n_skipped == (0 if n_torn else len(noise))


@settings(max_examples=60, deadline=None, suppress_health_check=FIXTURE)
@given(
    cuts=st.lists(st.integers(1, 900), min_size=1, max_size=30),
    flip=st.none() | st.integers(3000, 4400),
    lost_bytes=st.integers(0, 700),
)
def test_polled_in_pieces_equals_read_at_once(
    tmp_path: Path, cuts: list[int], flip: int | None, lost_bytes: int
) -> None:
    whole = bytearray(segment_bytes(small_stream(), comm_rows(comm_row()), frame_records=FRAME))
    whole = whole[: len(whole) - lost_bytes]
    if flip is not None and flip < len(whole):
        whole[flip] ^= 0x10
    at_once = read_bytes(tmp_path / "sealed", bytes(whole))
    path = write_segment(tmp_path / "live", b"", sealed=False)
    batches = []
    with SegmentReader(path) as reader, path.open("ab", buffering=0) as writer:
        done = 0
        while done < len(whole):
            size = cuts[len(batches) % len(cuts)]
            writer.write(whole[done : done + size])
            done += size
            batches.append(ops(*reader.poll()))
        batches.append(ops(*reader.finish()))
        assert reader.tally == at_once.tally
        assert np.array_equal(reader.comms, at_once.comms)
        assert np.array_equal(reader.clock_pairs, at_once.clock_pairs)
    assert np.array_equal(ops(*batches), at_once.records)


def test_rename_while_open_goes_unnoticed(tmp_path: Path) -> None:
    records = small_stream()
    whole = segment_bytes(records, frame_records=FRAME)
    path = write_segment(tmp_path, whole[:-700], sealed=False)
    with SegmentReader(path) as reader:
        first = ops(*reader.poll())
        sealed = path.rename(tmp_path / "000001.ciseg")
        with sealed.open("ab") as writer:
            writer.write(whole[-700:])
        rest = ops(*reader.poll(), *reader.finish())
        assert reader.is_sealed
    assert np.array_equal(ops(first, rest), records)


def test_an_older_layout_reads_with_missing_fields_unknown(tmp_path: Path) -> None:
    older = np.dtype([("seq", "<i8"), ("start_ns", "<i8"), ("comm_index", "<u2"), ("kind", "u1")])
    rows = np.array([(1, 50, 7, 1), (2, 60, 7, 2)], older)
    records = read_bytes(tmp_path, segment_bytes(rows)).records
    assert records["start_ns"].tolist() == [50, 60]
    assert records["comm_index"].tolist() == [7, 7]
    assert records["end_ns"].tolist() == [0, 0]
    assert records["peer_or_root"].tolist() == [-1, -1]
    assert records["seq_low"].tolist() == [1, 2]


def test_a_newer_layout_reads_without_its_new_fields(tmp_path: Path) -> None:
    known = small_stream(3)
    fields = [*known.dtype.descr, ("energy_uj", "<i8")]
    rows = np.zeros(3, np.dtype(fields))
    for name in known.dtype.names:
        rows[name] = known[name]
    rows["energy_uj"] = 9
    rows["op"][1] = 200  # an operation this version does not know
    expected = known.copy()
    expected["op"][1] = 0
    assert np.array_equal(read_bytes(tmp_path, segment_bytes(rows)).records, expected)


def test_values_too_large_for_the_current_field_become_unknown(tmp_path: Path) -> None:
    wide = np.dtype([("seq", "<i8"), ("n_folded", "<i8")])
    rows = np.array([(1, 65_535), (2, 65_536), (3, -1)], wide)
    assert read_bytes(tmp_path, segment_bytes(rows)).records["n_folded"].tolist() == [65_535, 0, 0]


@pytest.mark.parametrize(
    "field", ["seq", "start_ns", "end_ns", "enqueue_ns", "size_bytes", "count"]
)
def test_impossible_records_are_dropped_and_counted(tmp_path: Path, field: str) -> None:
    records = small_stream(5)
    records[field][2] = -1
    data = read_bytes(tmp_path, segment_bytes(records))
    assert np.array_equal(data.records, np.delete(records, 2))
    assert data.tally["segment_records_bad"] == 1
    assert data.tally["segment_records_read"] == 5


@pytest.mark.parametrize("field", ["kind", "op", "dtype", "red_op", "algo", "proto", "state"])
@pytest.mark.parametrize("value", [100, 128, 255])
def test_unknown_enumeration_values_become_unknown(tmp_path: Path, field: str, value: int) -> None:
    records = small_stream(3)
    records[field][1] = value
    expected = records.copy()
    expected[field][1] = 0
    assert np.array_equal(read_bytes(tmp_path, segment_bytes(records)).records, expected)


def test_a_later_identity_replaces_the_header(tmp_path: Path) -> None:
    unknown, known = identity(-1), identity(3)
    whole = segment_bytes(small_stream(), who=unknown, sealed=False)
    text = json.dumps(header_json(known)).encode()
    assert read_bytes(tmp_path, whole).identity.global_rank == -1
    found = read_bytes(tmp_path, whole + frame_bytes(FRAME_IDENTITY, text))
    assert found.identity == known
    alone = json.dumps(header_json(known)["identity"]).encode()
    found = read_bytes(tmp_path, whole + frame_bytes(FRAME_IDENTITY, alone))
    assert found.identity == known


def test_later_settings_replace_those_of_the_header(tmp_path: Path) -> None:
    text = json.dumps(header_json(settings={"safe_window_ns": 5})).encode()
    whole = segment_bytes(small_stream(), sealed=False) + frame_bytes(FRAME_IDENTITY, text)
    assert read_bytes(tmp_path, whole).settings == {"safe_window_ns": 5}


@pytest.mark.parametrize("text", [b"", b"{}", b"[" * 99_999, b'{"identity":{"pid":"x"}}'])
def test_an_identity_that_does_not_read_is_counted(tmp_path: Path, text: bytes) -> None:
    whole = segment_bytes(small_stream(), sealed=False) + frame_bytes(FRAME_IDENTITY, text)
    data = read_bytes(tmp_path, whole)
    assert data.identity == identity()
    assert losses_of(data) == {"segment_frames_bad": 1}


def test_the_newest_communicator_row_counts(tmp_path: Path) -> None:
    retired = comm_row(1, retired_ns=99)
    whole = segment_bytes(small_stream(), comm_rows(comm_row(1), comm_row(2)), sealed=False)
    data = read_bytes(tmp_path, whole + frame_bytes(2, retired.tobytes(), 1))
    assert data.comms["comm_index"].tolist() == [1, 2]
    assert data.comms["retired_ns"].tolist() == [99, 0]


def test_unknown_frame_types_are_skipped(tmp_path: Path) -> None:
    whole = segment_bytes(small_stream(), sealed=False) + frame_bytes(9, b"later version", 1)
    assert losses_of(read_bytes(tmp_path, whole)) == {}


@pytest.mark.parametrize(
    "fields",
    [
        [["seq", "<i8", 0], ["x", "O", 8]],
        [["seq", "<i8", 0], ["x", "<f8", 8]],
        [["seq", "<i8", 0], ["x", "S8", 8]],
        [["seq", "<i8", 0], ["x", "<i8", 4]],
        [["seq", "<i8", 0], ["seq", "<i8", 8]],
        [["seq", "<i8", 0], ["x", "<i8", 9]],
        [["seq", "<i8", 0], ["x", "<i8", -8]],
        [["seq", "<i8", 0], ["__class__", "<i8", 8]],
        [["start_ns", "<i8", 0]],
        [["seq", "(1000000000,)<i8", 0]],
    ],
)
def test_layouts_that_are_not_plain_are_refused(tmp_path: Path, fields: list[object]) -> None:
    header = header_json(layout={"record_bytes": 16, "fields": fields})
    rows = np.zeros(1, np.dtype([("seq", "<i8"), ("pad", "<i8")]))
    with pytest.raises(FormatError, match="ciseg"):
        read_bytes(tmp_path, segment_bytes(rows, header=header))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"x":' * 100_000,
        b"\xff\xfe",
        b'{"layout":{"record_bytes":1e99,"fields":[]}}',
        b" " * (2 << 20),
    ],
    ids=["empty", "bare", "deep list", "deep object", "no utf-8", "huge", "long"],
)
def test_hostile_header_json_is_a_format_error(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(FormatError):
        read_bytes(tmp_path, segment_bytes(small_stream(1), header=header))


@settings(max_examples=200, deadline=None, suppress_health_check=FIXTURE)
@given(
    values=st.lists(
        st.sampled_from([0, 1, 63, 64, 2**16, 2**31, 2**32 - 1]), min_size=6, max_size=6
    )
)
def test_hostile_header_sizes_are_bounded(tmp_path: Path, values: list[int]) -> None:
    whole = bytearray(segment_bytes(small_stream(2)))
    whole[12:36] = np.array(values, "<u4").tobytes()
    with pytest.raises(FormatError):
        read_bytes(tmp_path, bytes(whole))


def test_a_file_full_of_false_frames_ends_in_time(tmp_path: Path) -> None:
    false = bytearray(frame_bytes(FRAME_OPS, b"", 0))
    false[12:16] = (1 << 20).to_bytes(4, "little")
    whole = segment_bytes(small_stream(2), sealed=False)
    data = read_bytes(tmp_path, whole + bytes(false) * 40_000)
    assert len(data.records) == 2
    assert data.tally["segment_bytes_skipped"] + data.tally["segment_frames_torn"] > 0


def test_an_unknown_major_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"format 2\.1 is unknown") as caught:
        read_bytes(tmp_path, segment_bytes(small_stream(1), major=2))
    assert "format 2" in caught.value.next_step


def test_other_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.ciseg")
    for path, reason in [
        (tmp_path / "none.ciseg", "No such file"),
        (tmp_path / "pipe.ciseg", "not a regular file"),
        (tmp_path, "not a regular file"),
    ]:
        with pytest.raises(InputError, match=reason):
            read_segment(path)
    with pytest.raises(FormatError, match="no segment file"):
        read_bytes(tmp_path / "text", b"not a segment at all")


def test_large_files_come_in_pieces_of_bounded_size(tmp_path: Path) -> None:
    records = np.repeat(allreduce(1, 1.0), 3000)
    records["seq"] = np.arange(1, 3001)
    path = write_segment(tmp_path, segment_bytes(records, frame_records=100))
    with SegmentReader(path, piece_bytes=20_000) as reader:
        batches = list(reader.poll())
    assert max(batch.nbytes for batch in batches) <= 40_000
    assert np.array_equal(ops(*batches), records)
