"""The watch over boxes that are put together byte by byte: which are the run's, when evidence is
gathered, what is told, and that nothing it meets leaves it."""

import json
import os
import subprocess
import threading
import time

import pytest

from comminsight.capture.process import boot_id, start_ticks
from comminsight.format.layout import BOX_CLOSED, BOX_HEADER_DTYPE, BOX_JSON_OFFSET, SLOT_OVERDUE
from comminsight.launch import boxes
from comminsight.launch import watch as watching
from comminsight.launch.boxes import RunBoxes, overdue_slots
from comminsight.launch.watch import Watch
from comminsight.model.verdict import Cause
from comminsight.pipeline.hang_store import read_hangs
from comminsight.pipeline.layout import RunPaths
from tests.builders.box import InFlight, box_bytes
from tests.builders.records import allreduce, comm_row, comm_rows, identity, ops
from tests.builders.segment import header_json

LIMIT_S = 2.0


class Node:
    """A run directory and a folder of boxes of a four-rank run."""

    def __init__(self, folder):
        self.paths = RunPaths(folder / "run")
        self.paths.create()
        self.live = folder / "boxes"
        self.live.mkdir()
        self.boxes = RunBoxes("run-1", self.paths.segments, (self.live, self.paths.segments / "b"))
        self.told = []
        self.watch = Watch(self.paths, self.boxes, LIMIT_S, self.told.append)

    def rank(self, rank, *, waiting, name="", spool="", **who):
        """A box in which the rank did one all-reduce and, if waiting, hangs in the next."""
        done = allreduce(1, 100.0, comm=1)
        stuck = InFlight(allreduce(0, 200.0, op_seq=2, match_seq=2), state=SLOT_OVERDUE)
        identity_ = identity(rank, **who)
        data = box_bytes(
            ops(done), comm_rows(comm_row(1, "0-3", me=rank, desc=b"default_pg")), identity_,
            in_flight=(stuck,) if waiting else (), overdue_slots=int(waiting),
        )  # fmt: skip
        if spool:
            text = header_json(identity_, environment={"COMMINSIGHT_SPOOL": spool})
            data = with_json(data, text)
        path = self.live / (name or f"{identity_.pid}-1-1.box")
        path.write_bytes(data)
        return path

    def look(self, at_s, monkeypatch):
        monkeypatch.setattr(watching.time, "monotonic", lambda: at_s)
        self.watch.tick()


def with_json(data, document):
    text = json.dumps(document).encode()
    page = bytearray(data)
    offset = BOX_HEADER_DTYPE.fields["json_bytes"][1]
    page[offset : offset + 4] = len(text).to_bytes(4, "little")
    page[BOX_JSON_OFFSET : BOX_JSON_OFFSET + len(text)] = text
    return bytes(page)


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "take_stacks", lambda *_: ())
    return Node(tmp_path)


def three_wait(node):
    for rank in range(4):
        node.rank(rank, waiting=rank != 2)


def test_evidence_is_gathered_once_the_overdue_ops_have_settled(node, monkeypatch):
    three_wait(node)
    node.look(10.0, monkeypatch)
    node.look(10.9, monkeypatch)
    assert node.told == []
    node.look(11.0, monkeypatch)
    (verdict,) = node.told
    assert (verdict.cause, verdict.culprits) == (Cause.RANK_NOT_ENTERED, (2,))
    assert verdict.victims == (0, 1, 3)
    (event,), unreadable = read_hangs(node.paths)
    assert unreadable == []
    assert sorted(op.global_rank for op in event.in_flight) == [0, 1, 3]
    assert all(op.is_overdue and op.match_seq == 2 for op in event.in_flight)


def test_the_same_ops_are_no_news_and_new_ones_are(node, monkeypatch):
    three_wait(node)
    for at_s in (10.0, 11.0, 12.0, 40.0, 50.0):
        node.look(at_s, monkeypatch)
    assert len(node.told) == 1
    node.rank(2, waiting=True)
    node.look(60.0, monkeypatch)
    node.look(61.0, monkeypatch)
    assert len(node.told) == 2


def test_a_standing_hang_is_not_read_again_at_every_tick(node, monkeypatch):
    three_wait(node)
    gathered = []

    def gather(watch):
        gathered.append(watch)

    monkeypatch.setattr(Watch, "gather", gather)
    for tenth in range(300):
        node.look(10 + tenth / 10, monkeypatch)
    assert len(gathered) == 3


def test_nothing_overdue_is_nothing_to_do(node, monkeypatch):
    for rank in range(4):
        node.rank(rank, waiting=False)
    node.look(10.0, monkeypatch)
    node.look(90.0, monkeypatch)
    assert (node.told, node.watch.notes) == ([], [])
    assert list(node.paths.hangs.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left"), ValueError("odd"), KeyError(3)])
def test_a_watch_that_fails_notes_it_once_and_goes_on(error, node, monkeypatch):
    def failing(self):
        raise error

    three_wait(node)
    monkeypatch.setattr(Watch, "gather", failing)
    for at_s in (10.0, 11.0, 30.0, 50.0):
        node.look(at_s, monkeypatch)
    (note,) = node.watch.notes
    assert note.code == "launch.watch_failed"
    assert type(error).__name__ in note.params["error"]


def test_a_full_disk_keeps_no_verdict_back(node, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    three_wait(node)
    monkeypatch.setattr(watching, "write_hang", full)
    node.look(10.0, monkeypatch)
    node.look(11.0, monkeypatch)
    assert len(node.told) == 1
    assert "No space left" in node.watch.notes[0].params["error"]


def test_one_unreadable_session_does_not_hide_the_others(node, monkeypatch):
    three_wait(node)
    segment_dir = node.paths.segments / identity(0).session_id
    segment_dir.mkdir()
    (segment_dir / "000001.ciseg").write_bytes(b"no segment")
    node.look(10.0, monkeypatch)
    node.look(11.0, monkeypatch)
    (event,), _ = read_hangs(node.paths)
    assert [state.global_rank for state in event.ranks] == [1, 2, 3]
    assert "000001.ciseg" in node.watch.notes[0].params["error"]


@pytest.mark.parametrize(
    ("run_id", "spool", "is_ours"),
    [
        ("run-1", "", True),
        ("run-1", "own", True),
        ("run-1", "/data/other/inspector_logs", False),
        ("run-2", "", False),
        ("run-2", "own", False),
    ],
)
def test_whose_box_it_is(run_id, spool, is_ours, node):
    spool = str(node.paths.segments) if spool == "own" else spool
    path = node.rank(0, waiting=True, run_id=run_id, spool=spool)
    assert node.boxes.paths() == ([path] if is_ours else [])
    assert node.boxes.n_overdue() == int(is_ours)
    assert len(node.boxes.sessions()) == int(is_ours)
    node.boxes.archive(node.paths.boxes)
    assert path.exists() != is_ours
    assert [p.name for p in node.paths.boxes.iterdir()] == ([path.name] if is_ours else [])


def test_a_box_that_is_still_being_made_is_asked_again(node):
    path = node.live / "7-7-7.box"
    for unfinished in (b"", b"CIBBOX", node.rank(0, waiting=False).read_bytes()[:5000]):
        path.write_bytes(unfinished)
        assert path not in node.boxes.paths()
    for other in node.boxes.paths():
        other.unlink()
    node.rank(0, waiting=False, name=path.name)
    assert node.boxes.paths() == [path]


def test_boxes_that_cannot_be_copied_stay(node, monkeypatch):
    path = node.rank(0, waiting=False)
    assert node.boxes.paths() == [path]
    node.paths.boxes.rmdir()
    (note,) = node.boxes.archive(node.paths.boxes)
    assert path.exists()
    assert note.code == "launch.box_not_archived"


@pytest.mark.parametrize("content", [b"", b"short", None])
def test_no_overdue_ops_in_what_is_no_box(content, tmp_path):
    path = tmp_path / "x.box"
    if content is not None:
        path.write_bytes(content)
    assert overdue_slots(path) == 0


def test_a_closed_box_is_archived_too(node):
    who = identity(1)
    path = node.live / "1-1-1.box"
    path.write_bytes(box_bytes(ops(), who=who, state=BOX_CLOSED))
    assert node.boxes.archive(node.paths.boxes) == []
    assert not path.exists()


def test_a_process_that_is_just_dying_is_waited_for(node):
    dying = subprocess.Popen(["sleep", "0.5"])
    reaper = threading.Thread(target=dying.wait)
    reaper.start()
    who = {"pid": dying.pid, "pid_start_ticks": start_ticks(dying.pid), "boot_id": boot_id()}
    path = node.rank(0, waiting=False, **who)
    assert node.boxes.archive(node.paths.boxes) == []
    assert path.exists()
    node.watch.finish()
    reaper.join()
    assert not path.exists()
    assert [p.name for p in node.paths.boxes.iterdir()] == [path.name]


def test_a_process_that_lives_on_is_not_waited_for_without_end(node, monkeypatch):
    monkeypatch.setattr(boxes, "SETTLE_S", 0.2)
    who = {"pid": os.getpid(), "pid_start_ticks": start_ticks(os.getpid()), "boot_id": boot_id()}
    path = node.rank(0, waiting=False, **who)
    begin_s = time.monotonic()
    node.watch.finish()
    assert time.monotonic() - begin_s < 2.0
    assert path.exists()


@pytest.mark.parametrize(
    ("pid", "boot", "days", "heartbeat_days", "is_removed"),
    [
        ("gone", "here", 2, 2, True),
        ("gone", "here", 0, 2, False),
        ("gone", "here", 2, 0, False),
        ("alive", "here", 2, 2, False),
        ("gone", "elsewhere", 2, 2, False),
    ],
)
def test_only_boxes_of_processes_long_dead_are_removed(
    pid, boot, days, heartbeat_days, is_removed, node, monkeypatch
):
    day_ns = 24 * 3600 * 10**9
    now_ns = 10 * day_ns
    monkeypatch.setattr(boxes.time, "monotonic_ns", lambda: now_ns)
    alive = {"pid": os.getpid(), "pid_start_ticks": start_ticks(os.getpid())}
    who = alive if pid == "alive" else {"pid": 2**22 + 1, "pid_start_ticks": 1}
    boots = {"here": boot_id(), "elsewhere": "0f0f0f0f-0000-4000-8000-000000000000"}
    path = node.rank(0, waiting=False, name="old.box", boot_id=boots[boot], **who)
    set_heartbeat(path, now_ns - round(1.01 * heartbeat_days * day_ns))
    old_ns = time.time_ns() - round(1.01 * days * day_ns)
    os.utime(path, ns=(old_ns, old_ns))
    (node.live / "broken.box").write_bytes(b"CIBBOX")
    os.utime(node.live / "broken.box", ns=(old_ns, old_ns))
    assert boxes.remove_old(node.live) == int(is_removed)
    assert path.exists() != is_removed
    assert (node.live / "broken.box").exists()


def set_heartbeat(path, value_ns):
    data = bytearray(path.read_bytes())
    offset = BOX_HEADER_DTYPE.fields["heartbeat_mono_ns"][1]
    data[offset : offset + 8] = value_ns.to_bytes(8, "little")
    path.write_bytes(data)
