"""What the native recorder writes is what the readers read: alive, ended, after SIGKILL."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import comminsight
from comminsight.capture.discovery import discover
from comminsight.capture.live import LiveSource
from comminsight.capture.session import SessionData, read_session
from comminsight.format.segment import read_segment
from comminsight.model.hang import Liveness
from comminsight.model.ops import Op, OpState, RecordKind

LIBRARY = Path(comminsight.__file__).parent / "_native" / "libnccl-profiler-comminsight.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the native recorder is not built")

JOB = """
import ctypes, sys
ci = ctypes.CDLL(sys.argv[1])
ci.ci_op_begin_args.restype = ctypes.c_uint64
ci.ci_op_begin_args.argtypes = [ctypes.c_uint32] + [ctypes.c_uint8] * 4 + [
    ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, ctypes.c_uint16, ctypes.c_uint32]
ci.ci_op_end.argtypes = [ctypes.c_uint64, ctypes.c_uint8, ctypes.c_uint8]
ci.ci_comm_register.argtypes = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int32,
    ctypes.c_int32, ctypes.c_char_p, ctypes.c_uint8, ctypes.c_uint32]
comm = ci.ci_comm_register(0xfeed, b"dp", b"DP_GROUP", 1, 4, b"0-3", 2, 0)
def begin(size):
    return ci.ci_op_begin_args(comm, 1, 1, 9, 1, size // 4, size, -1, 0, 0)
for i in range(int(sys.argv[2])):
    ci.ci_op_end(begin(1024 + i), 3, 1)
hanging = begin(77)
if "flush" in sys.argv:
    ci.ci_flush(5000)
print("ready", flush=True)
if sys.stdin.readline() == "end\\n":
    ci.ci_op_end(hanging, 3, 1)
    ci.ci_close()
"""


class Job:
    """A process that records ``n_ops`` all_reduces and then sits in one more."""

    def __init__(self, root: Path, n_ops: int, *words: str) -> None:
        self.spool, self.boxes = root / "spool", root / "boxes"
        environment = {
            "COMMINSIGHT_SPOOL": str(self.spool), "COMMINSIGHT_BOX_DIR": str(self.boxes),
            "COMMINSIGHT_RUN_ID": "native", "RANK": "1", "WORLD_SIZE": "4",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", JOB, str(LIBRARY), str(n_ops), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def read(self) -> SessionData:
        (paths,) = discover(self.spool, self.boxes).sessions
        return read_session(paths)

    def end(self, *, orderly: bool) -> None:
        if not orderly:
            self.process.kill()
        self.process.communicate("end\n" if orderly else None)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def started(n_ops: int, *words: str) -> Job:
        made.append(Job(tmp_path, n_ops, *words))
        return made[-1]

    yield started
    for job in made:
        if job.process.poll() is None:
            job.end(orderly=False)


def ended(records: np.ndarray) -> np.ndarray:
    is_op = (records["kind"] == RecordKind.COLLECTIVE) & (records["state"] == OpState.DONE)
    return records[is_op]


def test_a_living_process_is_read_with_its_op_in_flight(start: Callable[..., Job]) -> None:
    job = start(2000)
    data = job.read()
    assert (data.liveness, data.pid) == (Liveness.ALIVE, job.process.pid)
    assert (data.identity.global_rank, data.identity.run_id) == (1, "native")
    assert ended(data.records)["size_bytes"].tolist() == [1024 + i for i in range(2000)]
    assert ended(data.records)["op_seq"].tolist() == list(range(1, 2001))
    assert data.in_flight["record"]["size_bytes"].tolist() == [77]
    assert data.in_flight["record"]["op"].tolist() == [Op.ALL_REDUCE]
    (row,) = data.comms
    assert (row["comm_hash"], row["desc"], row["members"]) == (0xFEED, b"DP_GROUP", b"0-3")
    assert (row["comm_rank"], row["comm_size"]) == (1, 4)
    assert data.tally["seq_gaps"] == data.tally["capture_lost"] == 0


def test_sigkill_loses_nothing_that_had_ended(start: Callable[..., Job]) -> None:
    job = start(3000)
    job.end(orderly=False)
    data = job.read()
    assert data.liveness is Liveness.DEAD
    assert len(ended(data.records)) == 3000
    assert data.in_flight["record"]["size_bytes"].tolist() == [77]
    assert data.tally["seq_gaps"] == 0


def test_an_orderly_end_is_closed_and_sealed(start: Callable[..., Job]) -> None:
    job = start(100)
    job.end(orderly=True)
    data = job.read()
    assert data.liveness is Liveness.CLOSED
    assert ended(data.records)["size_bytes"].tolist() == [*range(1024, 1124), 77]
    assert len(data.in_flight) == 0
    for path in job.spool.rglob("*.ciseg"):
        segment = read_segment(path)
        assert segment.is_sealed
        assert set(segment.tally.as_dict()) == {"segment_records_read"}


def test_segments_alone_hold_what_was_flushed(start: Callable[..., Job]) -> None:
    job = start(700, "flush")
    (paths,) = discover(job.spool).sessions
    data = read_session(paths)
    assert len(ended(data.records)) == 700
    assert data.liveness is Liveness.ALIVE


def test_live_delivers_every_record_once_up_to_the_end(start: Callable[..., Job]) -> None:
    job = start(5000)
    live = LiveSource(job.spool, job.boxes, run_id="native")
    batches = live.poll()
    time.sleep(0.3)
    batches += live.poll()
    job.end(orderly=True)
    batches += live.poll()
    live.close()
    seq = np.concatenate([batch.records["seq"] for batch in batches])
    assert seq.tolist() == list(range(1, len(seq) + 1))
    assert len(ended(np.concatenate([batch.records for batch in batches]))) == 5001
    assert batches[-1].is_ended
