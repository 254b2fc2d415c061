"""NCCL's RAS is asked once per hang event, in the background, and only where it may be."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from comminsight.capture.ras_client import RasReply
from comminsight.errors import UnreachableError
from comminsight.launch import watch as watching
from comminsight.launch.boxes import RunBoxes
from comminsight.launch.ras_asking import RasAsking, job_environment, may_be_asked
from comminsight.launch.watch import Watch
from comminsight.model.ops import Backend
from comminsight.model.ras import RasForm
from comminsight.pipeline.hang_store import read_hangs
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.ras_store import read_kept_ras
from tests.builders.ras import TEXT_BEHIND, ras_comm, ras_json, ras_rank
from tests.builders.ras_server import RasServer, serving
from tests.builders.records import comm_row, comm_rows, identity
from tests.builders.segment import header_json
from tests.unit.launch.test_watch import Node, with_json
from tests.unit.pipeline.test_ends import session

JSON = ras_json(ras_comm(0xAB, [ras_rank(0)]))
NCCL, GLOO = Backend.NCCL, Backend.GLOO


def of(*rows):
    return replace(session(0), comms=comm_rows(*rows))


@pytest.fixture
def paths(tmp_path):
    made = RunPaths(tmp_path / "run")
    made.create()
    return made


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], False),
        ([(GLOO, 0)], False),
        ([(NCCL, 0)], True),
        ([(GLOO, 0), (NCCL, 22703)], True),
        ([(NCCL, 22602)], False),
        ([(NCCL, 22602), (NCCL, 22703)], False),
        ([(GLOO, 21000), (NCCL, 23203)], True),
    ],
)
def test_only_an_nccl_that_bears_the_question_is_asked(rows, expected):
    sessions = [of(), of(*(comm_row(1, backend=b, lib_version=v) for b, v in rows))]
    assert may_be_asked(sessions) is expected


def begin(asking, paths, environment=None, observed_mono_ns=7):
    return asking.begin([of(comm_row(1, backend=NCCL))], environment or {}, paths, observed_mono_ns)


def test_the_answer_is_kept_as_it_came(paths):
    asking = RasAsking(lambda _: RasReply(RasForm.TEXT, TEXT_BEHIND.encode()))
    assert begin(asking, paths)
    assert asking.finish() == []
    assert (paths.hangs / "ras-7.txt").read_text() == TEXT_BEHIND
    (reading,), unreadable = read_kept_ras(paths)
    assert (reading.observed_mono_ns, reading.source, unreadable) == (7, "ras-7.txt", [])


def test_one_question_at_a_time_and_the_caller_goes_on(paths):
    free = threading.Event()

    def slowly(_):
        assert free.wait(20)
        return RasReply(RasForm.JSON, JSON)

    asking = RasAsking(slowly)
    begin_s = time.monotonic()
    assert begin(asking, paths)
    assert not begin(asking, paths, observed_mono_ns=8)
    assert time.monotonic() - begin_s < 1.0
    free.set()
    assert asking.finish() == []
    assert begin(asking, paths, observed_mono_ns=9)
    asking.finish()
    assert sorted(path.name for path in paths.hangs.iterdir()) == ["ras-7.json", "ras-9.json"]


@pytest.mark.parametrize(
    ("error", "said"),
    [(UnreachableError("nobody there"), "nobody there"), (ValueError("odd"), "ValueError: odd")],
)
def test_what_fails_is_one_note(error, said, paths):
    def failing(_):
        raise error

    asking = RasAsking(failing)
    for observed_mono_ns in (1, 2):
        assert begin(asking, paths, observed_mono_ns=observed_mono_ns)
        notes = asking.finish()
    assert [(note.code, note.params) for note in notes] == [
        ("launch.ras_unanswered", {"error": said})
    ]
    assert list(paths.hangs.iterdir()) == []


def test_ras_that_is_switched_off_is_not_asked(paths):
    asking = RasAsking(lambda _: pytest.fail("asked"))
    assert not begin(asking, paths, {"NCCL_RAS_ENABLE": "0"})
    assert asking.finish() == []


def test_a_process_that_can_have_no_thread_goes_on_without(paths, monkeypatch):
    def refused(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    asking = RasAsking(lambda _: pytest.fail("asked"))
    assert not begin(asking, paths)
    assert [note.params["error"] for note in asking.finish()] == ["can't start new thread"]


class NcclNode(Node):
    """A node whose ranks use NCCL with RAS at ``address``."""

    def nccl_rank(self, rank, address, *, waiting):
        path = self.rank(rank, waiting=waiting)
        data = path.read_bytes().replace(
            comm_row(1, "0-3", me=rank, desc=b"default_pg").tobytes(),
            comm_row(1, "0-3", me=rank, desc=b"default_pg", backend=NCCL).tobytes(),
        )
        stated = {"NCCL_RAS_ADDR": f"{address[0]}:{address[1]}"}
        path.write_bytes(with_json(data, header_json(identity(rank), environment=stated)))


@pytest.mark.parametrize("hang_after", [99, 1], ids=["answers", "hangs"])
def test_a_hang_is_told_at_once_and_the_answer_lies_beside_it(hang_after, tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "take_stacks", lambda *_: ())
    monkeypatch.setattr("comminsight.launch.ras_asking.FINISH_S", 0.5)
    monkeypatch.setattr("comminsight.launch.boxes.SETTLE_S", 0.0)
    node = NcclNode(tmp_path)
    with serving(RasServer(json=JSON, hang_after=hang_after)) as server:
        for rank in range(4):
            node.nccl_rank(rank, server.address, waiting=rank != 2)
        begin_s = time.monotonic()
        node.watch.gather()
        assert [verdict.culprits for verdict in node.told] == [(2,)]
        node.watch.finish()
        assert time.monotonic() - begin_s < 5.0
    (event,), _ = read_hangs(node.paths)
    readings, _ = read_kept_ras(node.paths)
    has_answer = hang_after == 99
    assert [r.observed_mono_ns for r in readings] == [event.observed_mono_ns] * has_answer
    assert server.heard[-1] == "VERBOSE STATUS" if has_answer else "TIMEOUT 10"


def test_without_boxes_there_is_no_environment(tmp_path):
    assert job_environment(RunBoxes("run-1", tmp_path, (tmp_path,))) == {}


def test_a_watch_without_nccl_asks_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "take_stacks", lambda *_: ())
    node = Node(tmp_path)
    for rank in range(4):
        node.rank(rank, waiting=rank != 2)
    watch = Watch(node.paths, node.boxes, 2.0, node.told.append)
    watch._ras.ask = lambda _: pytest.fail("asked")
    watch.gather()
    assert watch._ras.finish() == []
    assert [path.name[:5] for path in node.paths.hangs.iterdir()] == ["hang-"]
