from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comminsight.capture.live import LiveSource
from comminsight.capture.process import boot_id, start_ticks
from comminsight.capture.replay import ReplaySource
from comminsight.capture.source import Source, SourceBatch
from comminsight.format.layout import BOX_CLOSED
from comminsight.model.hang import Liveness
from comminsight.model.topology import SessionIdentity
from tests.builders import (
    InFlight,
    Stream,
    allreduce,
    box_bytes,
    comm_row,
    identity,
    open_marker,
    ops,
    segment_bytes,
    write_segment,
)


def living(rank: int = 0) -> SessionIdentity:
    """A session whose process runs while the test does and is not the reader itself."""
    pid = os.getppid()
    return identity(rank, pid=pid, pid_start_ticks=start_ticks(pid), boot_id=boot_id())


def stream_of(n_records: int) -> np.ndarray:
    stream = Stream()
    for i in range(n_records):
        stream.allreduce(10.0 * i + 1)
    return stream.batch()


def drained(source: Source) -> list[SourceBatch]:
    batches = []
    while news := source.poll():
        batches += news
    source.close()
    return batches


def all_records(batches: list[SourceBatch]) -> np.ndarray:
    return ops(*(batch.records for batch in batches))


class FakeRecorder:
    """Writes segments and a box as a process would, one chunk at a time."""

    def __init__(self, root: Path, who: SessionIdentity, records: np.ndarray) -> None:
        self.spool, self.boxes = root / "inspector_logs", root / "blackbox"
        self.folder = self.spool / who.session_id
        self.box = self.boxes / f"{who.pid}-{who.pid_start_ticks}-1.box"
        self.boxes.mkdir(parents=True)
        self.folder.mkdir(parents=True)
        self.who, self.records = who, records

    def write_box(self, n_records: int, *, closed: bool = False, hole: int = 0) -> None:
        ring = self.records[:n_records]
        if hole:
            ring = ring[ring["seq"] != hole]
        in_flight = () if closed else (InFlight(allreduce(0, 1.0, op_seq=n_records + 1)),)
        states = {"state": BOX_CLOSED} if closed else {}
        data = box_bytes(
            ring, comm_row(), self.who, in_flight=in_flight, ring_head=n_records, **states
        )
        self.box.write_bytes(data)

    def segment(self, begin: int, end: int, *, sealed: bool) -> bytes:
        return segment_bytes(
            self.records[begin:end], comm_row(), self.who, sealed=sealed, frame_records=3
        )


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 10_000))
def test_live_in_random_pieces_equals_replay(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Two segments grow in random pieces while the box runs ahead with torn records."""
    rng = random.Random(seed)
    root = tmp_path_factory.mktemp("run")
    records = stream_of(40)
    recorder = FakeRecorder(root, living(), records)
    live = LiveSource(recorder.spool, recorder.boxes)
    batches = []
    stored = 0
    for number, (begin, end) in enumerate([(0, 22), (22, 40)], start=1):
        whole = recorder.segment(begin, end, sealed=True)
        path = write_segment(recorder.folder, b"", number=number, sealed=False)
        written = 0
        while written < len(whole):
            size = rng.randint(100, 1500)
            with path.open("ab") as file:
                file.write(whole[written : written + size])
            written += size
            stored = max(stored, begin + (end - begin) * min(written, len(whole)) // len(whole))
            recorder.write_box(rng.randint(stored, 40), hole=rng.choice([0, stored + 2]))
            batches += live.poll()
        path.rename(path.with_suffix(""))
    recorder.write_box(40, closed=True)
    batches += live.poll()
    assert live.poll() == []
    live.close()
    replayed = drained(ReplaySource(root))
    assert np.array_equal(all_records(batches), records)
    assert np.array_equal(all_records(replayed), records)
    assert batches[-1].is_ended
    assert batches[-1].liveness is replayed[-1].liveness is Liveness.CLOSED
    assert batches[-1].session == replayed[-1].session
    assert np.array_equal(batches[-1].comms, replayed[-1].comms)
    assert batches[-1].tally["seq_gaps"] == 0


def test_the_ring_shows_what_no_segment_holds_yet(tmp_path: Path) -> None:
    recorder = FakeRecorder(tmp_path, living(), stream_of(9))
    recorder.write_box(6)
    write_segment(recorder.folder, recorder.segment(0, 3, sealed=False), sealed=False)
    live = LiveSource(recorder.spool, recorder.boxes)
    (first,) = live.poll()
    assert first.records["seq"].tolist() == [1, 2, 3, 4, 5, 6]
    assert first.in_flight["record"]["op_seq"].tolist() == [7]
    assert (first.liveness, first.pid) == (Liveness.ALIVE, os.getppid())
    recorder.write_box(9)
    (second,) = live.poll()
    assert second.records["seq"].tolist() == [7, 8, 9]
    live.close()


def test_a_killed_process_is_segments_and_ring(tmp_path: Path) -> None:
    who = identity(boot_id=boot_id(), pid=os.getppid(), pid_start_ticks=1)
    recorder = FakeRecorder(tmp_path, who, stream_of(9))
    write_segment(recorder.folder, recorder.segment(0, 5, sealed=False)[:-100], sealed=False)
    recorder.write_box(9)
    for source in (LiveSource(recorder.spool, recorder.boxes), ReplaySource(tmp_path)):
        (batch,) = drained(source)
        assert batch.records["seq"].tolist() == list(range(1, 10))
        assert batch.liveness is Liveness.DEAD
        assert batch.is_ended
        assert batch.in_flight["record"]["op_seq"].tolist() == [10]
        assert batch.tally["segment_frames_torn"] == 1
        assert batch.tally["seq_gaps"] == 0


def test_a_segment_only_session_ends_with_its_process(tmp_path: Path) -> None:
    who = identity(boot_id=boot_id(), pid=os.getppid(), pid_start_ticks=1)
    folder = tmp_path / who.session_id
    write_segment(folder, segment_bytes(stream_of(3), who=who, sealed=False), sealed=False)
    live = LiveSource(tmp_path)
    batches = [*live.poll(), *live.poll(), *live.poll()]
    assert all_records(batches)["seq"].tolist() == [1, 2, 3]
    assert batches[-1].is_ended
    assert batches[-1].liveness is Liveness.DEAD


def test_without_a_box_markers_tell_what_is_in_flight(tmp_path: Path) -> None:
    op = allreduce(0, 1.0, op_seq=7)
    rows = ops(open_marker(op, 1), open_marker(allreduce(0, 2.0, op_seq=8), 2), op)
    rows["seq"] = rows["seq_low"] = [1, 2, 3]
    folder = tmp_path / living().session_id
    whole = segment_bytes(rows, who=living(), sealed=False, frame_records=1)
    path = write_segment(folder, whole[: -(48 + 128)], sealed=False)
    live = LiveSource(tmp_path)
    assert live.poll()[0].in_flight["record"]["op_seq"].tolist() == [7, 8]
    path.write_bytes(whole)
    assert live.poll()[0].in_flight["record"]["op_seq"].tolist() == [8]
    live.close()


def test_a_reader_that_comes_late_to_a_box_without_segments(tmp_path: Path) -> None:
    rows = np.repeat(allreduce(1, 1.0), 8192)
    rows["seq"] = rows["seq_low"] = np.arange(501, 8693)
    (tmp_path / "a.box").write_bytes(box_bytes(rows, who=living()))
    live = LiveSource(None, tmp_path)
    (batch,) = live.poll()
    assert batch.records["seq"][[0, -1]].tolist() == [501, 8692]
    assert batch.tally["ring_records_overwritten"] == 500
    live.close()


def test_sessions_of_other_runs_are_passed_over(tmp_path: Path) -> None:
    recorder = FakeRecorder(tmp_path, living(), stream_of(3))
    recorder.write_box(3)
    write_segment(recorder.folder, recorder.segment(0, 3, sealed=False), sealed=False)
    other = LiveSource(recorder.spool, recorder.boxes, run_id="other")
    assert other.poll() == other.poll() == []
    assert LiveSource(recorder.spool, run_id="other").poll() == []
    assert len(LiveSource(recorder.spool, recorder.boxes, run_id="run-1").poll()) == 1


def test_retention_removing_a_segment_being_read_costs_nothing_that_was_written(
    tmp_path: Path,
) -> None:
    recorder = FakeRecorder(tmp_path, living(), stream_of(9))
    recorder.write_box(0)
    path = write_segment(recorder.folder, recorder.segment(0, 5, sealed=False), sealed=False)
    live = LiveSource(recorder.spool, recorder.boxes)
    batches = live.poll()
    path.unlink()
    write_segment(recorder.folder, recorder.segment(5, 9, sealed=False), number=2, sealed=False)
    batches += live.poll()
    live.close()
    assert all_records(batches)["seq"].tolist() == list(range(1, 10))


def test_a_broken_segment_is_named_and_the_next_is_read(tmp_path: Path) -> None:
    recorder = FakeRecorder(tmp_path, living(), stream_of(9))
    recorder.write_box(0)
    write_segment(recorder.folder, b"rubbish", number=1)
    write_segment(recorder.folder, recorder.segment(4, 9, sealed=False), number=2, sealed=False)
    live = LiveSource(recorder.spool, recorder.boxes)
    (batch,) = live.poll()
    live.close()
    assert batch.records["seq"].tolist() == [5, 6, 7, 8, 9]
    assert batch.tally["segment_files_unreadable"] == 1
    assert "000001.ciseg" in live.problems[recorder.who.session_id][0]


def test_replay_names_what_it_could_not_read(tmp_path: Path) -> None:
    recorder = FakeRecorder(tmp_path, identity(), stream_of(3))
    (recorder.boxes / "broken.box").write_bytes(b"")
    source = ReplaySource(tmp_path)
    assert drained(source) == []
    assert len(source.problems) == 2
