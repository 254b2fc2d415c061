from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.capture.discovery import SessionPaths, discover, discover_run, segment_files
from comminsight.capture.merge import SeqMerger
from comminsight.capture.session import join_session, read_session, unfinished_markers
from comminsight.errors import InputError
from comminsight.format.blackbox import BoxData, parse_box
from comminsight.format.layout import LOSS_REASONS, SLOT_OVERDUE
from comminsight.format.segment import SegmentData, read_segment
from comminsight.model.hang import Liveness
from comminsight.model.ops import LossReason
from tests.builders import (
    InFlight,
    Stream,
    allreduce,
    box_bytes,
    comm_row,
    drain,
    identity,
    open_marker,
    ops,
    overdue_marker,
    segment_bytes,
    write_segment,
)


def numbered(*seqs: int) -> np.ndarray:
    return ops(*(allreduce(seq, float(seq)) for seq in seqs))


def segment(tmp_path: Path, records: np.ndarray, **fields: object) -> SegmentData:
    return read_segment(write_segment(tmp_path, segment_bytes(records, **fields)))


def box(records: np.ndarray, **fields: object) -> BoxData:
    return parse_box(box_bytes(records, **fields))


def seqs(records: np.ndarray) -> list[int]:
    return [int(seq) for seq in records["seq"]]


def test_the_union_holds_every_record_once(tmp_path: Path) -> None:
    joined = join_session([segment(tmp_path, numbered(1, 2, 3, 4))], box(numbered(3, 4, 5, 6)))
    assert seqs(joined.records) == [1, 2, 3, 4, 5, 6]
    assert joined.tally["records_duplicate"] == 2
    assert joined.tally["seq_gaps"] == 0


def test_a_number_in_neither_is_a_gap(tmp_path: Path) -> None:
    joined = join_session([segment(tmp_path, numbered(1, 2, 5))], None)
    assert joined.tally["seq_gaps"] == 2


def test_a_lost_segment_frame_is_filled_from_the_ring(tmp_path: Path) -> None:
    joined = join_session([segment(tmp_path, numbered(1, 4))], box(numbered(1, 2, 3, 4)))
    assert seqs(joined.records) == [1, 2, 3, 4]
    assert joined.tally["seq_gaps"] == 0


def test_missing_numbers_are_counted_once_under_their_cause(tmp_path: Path) -> None:
    """Ring went round once (1-100 gone), 150 is torn; the process died writing the last."""
    last = 8292
    present = np.delete(np.arange(101, last), 49)
    rows = np.repeat(allreduce(1, 1.0), len(present))
    rows["seq"] = rows["seq_low"] = present
    torn = box(rows, ring_head=last)
    alone = join_session([], torn)
    assert alone.tally["ring_records_overwritten"] == 100
    assert alone.tally["ring_records_torn"] == 2
    assert alone.tally["seq_gaps"] == 0
    stored = segment(tmp_path, numbered(*range(11, 151)))
    joined = join_session([stored], torn)
    assert joined.tally["ring_records_overwritten"] == 0
    assert joined.tally["ring_records_torn"] == 1
    assert joined.tally["seq_gaps"] == 10


def test_the_tail_of_a_session_misses_nothing_before_its_first_record(tmp_path: Path) -> None:
    stored = [segment(tmp_path, numbered(101, 102, 104))]
    assert join_session(stored, None).tally["seq_gaps"] == 101
    tail = join_session(stored, box(numbered(104, 105)), is_tail=True)
    assert seqs(tail.records) == [101, 102, 104, 105]
    assert (tail.tally["ring_records_torn"], tail.tally["seq_gaps"]) == (1, 0)
    assert join_session(stored, None, is_tail=True).tally["seq_gaps"] == 1


def test_what_a_living_process_is_just_writing_is_no_loss() -> None:
    reading = box(numbered(1, 2, 3), ring_head=4)
    assert join_session([], reading, is_alive=True).tally["ring_records_torn"] == 0
    assert join_session([], reading).tally["ring_records_torn"] == 1


@pytest.mark.parametrize(
    ("in_segment", "in_ring", "fields", "expected"),
    [
        ((1, 2, 3), None, {}, 1),
        ((), None, {}, 1),
        ((1, 2, 4, 5), None, {}, 4),
        ((2, 3), None, {}, 2),
        ((1, 2), (1, 2, 3), {}, 1),
        ((1, 4), (2, 3, 4), {}, 1),
        # the newest is torn: nothing is known from any number on
        ((1, 2), (1, 2), {"ring_head": 3}, 4),
        # ops that never got a number
        ((1, 2), (1, 2), {"losses": {(1, LossReason.SLOTS_FULL): 1}}, 0),
        ((1, 2), (1, 2), {"losses": {(1, LossReason.MASKED): 1}}, 1),
    ],
)
def test_from_which_record_on_nothing_is_missing(
    tmp_path: Path, in_segment: tuple[int, ...], in_ring: tuple[int, ...] | None,
    fields: dict[str, object], expected: int,
) -> None:  # fmt: skip
    stored = [segment(tmp_path, numbered(*in_segment))]
    witness = None if in_ring is None else box(numbered(*in_ring), comms=comm_row(), **fields)
    assert join_session(stored, witness).complete_from_seq == expected
    if in_segment and expected == 1:
        tail = [segment(tmp_path, numbered(*(seq + 100 for seq in in_segment)))]
        assert join_session(tail, None, is_tail=True).complete_from_seq > 1


@settings(max_examples=80, deadline=None)
@given(
    in_segment=st.sets(st.integers(1, 60)),
    in_ring=st.sets(st.integers(1, 60)),
    cuts=st.lists(st.integers(0, 60), max_size=6).map(sorted),
)
def test_merging_in_pieces_equals_merging_at_once(
    in_segment: set[int], in_ring: set[int], cuts: list[int]
) -> None:
    """Segments are read in order up to each cut while the ring shows what exists so far."""
    merger, batches = SeqMerger(), []
    done = 0
    for cut in [*cuts, 60]:
        stored = numbered(*sorted(seq for seq in in_segment if done < seq <= cut))
        ring = numbered(*sorted(in_ring))
        batches.append(merger.take(stored, ring))
        done = cut
    batches.append(merger.take(ops(), numbered(*sorted(in_ring)), is_final=True))
    found = seqs(ops(*batches))
    assert found == sorted(in_segment | in_ring)
    if found:
        missing = found[-1] - len(found)
        assert merger.tally["seq_gaps"] == missing


def test_a_record_waits_for_a_smaller_number_that_may_come() -> None:
    merger = SeqMerger()
    assert seqs(merger.take(ops(), numbered(1, 2, 4, 5))) == [1, 2]
    assert seqs(merger.take(numbered(1, 2, 3), numbered(4, 5))) == [3, 4, 5]


def test_identity_comms_and_losses_join(tmp_path: Path) -> None:
    table = np.zeros((2, LOSS_REASONS), np.int64)
    table[1, LossReason.SLOTS_FULL] = 4
    stored = segment(tmp_path, numbered(1), comms=comm_row(1), who=identity(3), losses=table)
    counted = {(1, LossReason.SLOTS_FULL): 6, (2, LossReason.MASKED): 9, (0, LossReason.FORKED): 1}
    live = box(
        numbered(1),
        comms=ops_of_comms(comm_row(1, first_op_ns=77), comm_row(2)),
        who=identity(-1, pid=1003, pid_start_ticks=103),
        losses=counted,
    )
    joined = join_session([stored], live)
    assert joined.identity.global_rank == 3
    assert joined.comms["first_op_ns"].tolist() == [77, 2_000_000]
    assert joined.losses[1, LossReason.SLOTS_FULL] == 6
    assert joined.tally["capture_lost"] == 7


def ops_of_comms(*rows: np.ndarray) -> np.ndarray:
    return np.concatenate(rows)


def test_markers_without_an_end_are_the_ops_in_flight(tmp_path: Path) -> None:
    stream = Stream()
    ended = allreduce(0, 1.0, op_seq=1)
    hanging, late = allreduce(0, 5.0, op_seq=2), allreduce(0, 3.0, op_seq=3)
    for row in (open_marker(ended, 0), ended, open_marker(hanging, 0), open_marker(late, 0),
                overdue_marker(late, 0), drain(0, 9.0)):  # fmt: skip
        stream.append(row)
    slots = unfinished_markers(stream.batch(), comm_row())
    assert slots["record"]["op_seq"].tolist() == [3, 2]
    assert (slots["state_word"][0] & 0xFF) == SLOT_OVERDUE
    joined = join_session([segment(tmp_path, stream.batch())], None)
    assert np.array_equal(joined.in_flight, slots)


def test_the_slots_of_the_box_are_the_ops_in_flight() -> None:
    joined = join_session([], box(ops(), in_flight=(InFlight(allreduce(0, 1.0, op_seq=8)),)))
    assert joined.in_flight["record"]["op_seq"].tolist() == [8]


def run_directory(root: Path) -> Path:
    both, boxed, stored = identity(0), identity(1), identity(2)
    for who in (both, stored):
        folder = root / "inspector_logs" / who.session_id
        write_segment(folder, segment_bytes(numbered(1, 2), who=who), number=1)
        write_segment(
            folder, segment_bytes(numbered(3), who=who, sealed=False), number=2, sealed=False
        )
    (root / "blackbox").mkdir()
    for who in (both, boxed):
        name = f"{who.pid}-{who.pid_start_ticks}-{who.created_mono_ns}.box"
        (root / "blackbox" / name).write_bytes(box_bytes(numbered(1, 2, 3, 4), who=who))
    (root / "blackbox" / "broken.box").write_bytes(b"no box")
    (root / "blackbox" / "notes.txt").write_text("not ours")
    (root / "inspector_logs" / "tmp").mkdir()
    return root


def test_sessions_of_a_run_have_either_part_or_both(tmp_path: Path) -> None:
    found = discover_run(run_directory(tmp_path))
    parts = [(paths.segment_dir is not None, paths.box is not None) for paths in found.sessions]
    assert parts == [(True, True), (False, True), (True, False)]
    assert [path.name for path in found.unreadable] == ["broken.box"]
    records = [seqs(read_session(paths).records) for paths in found.sessions]
    assert records == [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3]]


def test_of_two_boxes_of_a_session_the_later_counts(tmp_path: Path) -> None:
    for created, last in ((5, 1), (10, 2)):
        who = identity(0, created_mono_ns=created)
        (tmp_path / f"{created}.box").write_bytes(box_bytes(numbered(*range(1, last + 1)), who=who))
    (paths,) = discover(None, tmp_path).sessions
    assert paths.box == tmp_path / "10.box"


def test_a_sealed_segment_hides_its_open_name(tmp_path: Path) -> None:
    for name in ("000002.ciseg", "000001.ciseg.open", "000001.ciseg", "1.txt"):
        (tmp_path / name).touch()
    assert [path.name for _, path in segment_files(tmp_path)] == ["000001.ciseg", "000002.ciseg"]


def test_a_segment_that_was_only_just_made_is_none_yet(tmp_path: Path) -> None:
    write_segment(tmp_path, segment_bytes(numbered(1, 2)), number=1)
    (tmp_path / "000002.ciseg.open").touch()
    assert [number for number, _ in segment_files(tmp_path)] == [1]
    data = read_session(SessionPaths("s", segment_dir=tmp_path))
    assert (seqs(data.records), data.problems) == ([1, 2], ())
    (tmp_path / "000002.ciseg.open").write_bytes(b"C")
    assert [number for number, _ in segment_files(tmp_path)] == [1, 2]


def test_folders_that_do_not_exist_hold_nothing(tmp_path: Path) -> None:
    assert discover_run(tmp_path / "none").sessions == ()


def test_a_damaged_file_is_counted_and_named_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write_segment(folder, b"CISEGM\r\nbroken", number=1)
    write_segment(folder, segment_bytes(numbered(5, 6)), number=2)
    data = read_session(SessionPaths("s", segment_dir=folder))
    assert seqs(data.records) == [5, 6]
    assert data.tally["segment_files_unreadable"] == 1
    assert "000001.ciseg" in data.problems[0]
    assert data.tally["seq_gaps"] == 4


def test_a_session_without_a_readable_file_is_an_input_error(tmp_path: Path) -> None:
    write_segment(tmp_path, b"nothing")
    with pytest.raises(InputError, match=r"b007-1-1.*000001"):
        read_session(SessionPaths("b007-1-1", segment_dir=tmp_path))
    with pytest.raises(InputError, match="neither"):
        read_session(SessionPaths("b007-1-1"))


@pytest.mark.parametrize(
    ("sealed", "liveness"), [(True, Liveness.CLOSED), (False, Liveness.UNKNOWN)]
)
def test_only_an_orderly_end_seals_the_last_segment(
    tmp_path: Path, sealed: bool, liveness: Liveness
) -> None:
    write_segment(tmp_path, segment_bytes(numbered(1), sealed=sealed), sealed=sealed)
    assert read_session(SessionPaths("s", segment_dir=tmp_path)).liveness is liveness
