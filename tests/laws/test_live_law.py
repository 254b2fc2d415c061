"""Live equals read at once: a session followed in pieces gives the records, the losses and the ops
in flight that ``read_session`` finds, whatever the session left and however its process stands."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comminsight.capture.discovery import discover_run
from comminsight.capture.live import LiveSource
from comminsight.capture.process import boot_id, start_ticks
from comminsight.capture.session import SessionData, read_session
from comminsight.capture.source import SourceBatch
from comminsight.format.layout import BOX_CLOSED, BOX_LIVE
from comminsight.model.hang import Liveness
from comminsight.model.tally import NOT_READ
from comminsight.model.topology import SessionIdentity
from tests.builders import (
    InFlight,
    Stream,
    allreduce,
    box_bytes,
    comm_row,
    identity,
    open_marker,
    segment_bytes,
    write_segment,
)

N = 40
ALIVE, DEAD, CLOSED = Liveness.ALIVE, Liveness.DEAD, Liveness.CLOSED


def process(liveness: Liveness) -> SessionIdentity:
    """A process that runs while the test does, or one that is gone."""
    pid = os.getppid()
    ticks = start_ticks(pid) if liveness is ALIVE else 1
    return identity(pid=pid, pid_start_ticks=ticks, boot_id=boot_id())


def records() -> np.ndarray:
    stream = Stream()
    for i in range(N - 1):
        stream.allreduce(10.0 * i + 1)
    stream.append(open_marker(allreduce(0, 500.0, op_seq=N, match_seq=N), 0))
    return stream.batch()


def write_state(
    root: Path, parts: str, liveness: Liveness, n_stored: int, n_done: int, holes: set[int]
) -> None:
    """What a recorder has left after ``n_done`` records, ``n_stored`` of them in a segment."""
    who, rows = process(liveness), records()[:n_done]
    is_over = liveness is CLOSED and n_done == N
    if parts != "box":
        kept = rows[:n_stored]
        kept = kept[~np.isin(kept["seq"], list(holes))]
        data = segment_bytes(kept, comm_row(), who, sealed=is_over, frame_records=1)
        folder = root / "inspector_logs" / who.session_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "000001.ciseg.open").unlink(missing_ok=True) if is_over else None
        write_segment(folder, data, sealed=is_over)
    if parts != "segments":
        in_flight = () if is_over else (InFlight(allreduce(0, 500.0, op_seq=N, match_seq=N)),)
        state = BOX_CLOSED if is_over else BOX_LIVE
        data = box_bytes(rows, comm_row(), who, in_flight=in_flight, ring_head=n_done, state=state)
        (root / "blackbox").mkdir(exist_ok=True)
        (root / "blackbox" / "1.box").write_bytes(data)


def lost(found: SourceBatch | SessionData) -> dict[str, int]:
    return {name: found.tally[name] for name in NOT_READ}


@pytest.mark.parametrize("liveness", [ALIVE, DEAD, CLOSED])
@pytest.mark.parametrize("parts", ["both", "box", "segments"])
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    cuts=st.lists(st.tuples(st.integers(0, N), st.integers(0, N)), max_size=4).map(sorted),
    holes=st.sets(st.integers(1, N - 1), max_size=5),
)
def test_followed_equals_read_at_once(
    tmp_path_factory: pytest.TempPathFactory, parts: str, liveness: Liveness,
    cuts: list[tuple[int, int]], holes: set[int],
) -> None:  # fmt: skip
    root = tmp_path_factory.mktemp("run")
    if liveness is ALIVE:
        holes = set()  # who follows a living process still waits for them
    live = LiveSource(root / "inspector_logs", root / "blackbox")
    batches: list[SourceBatch] = []
    stored = done = 0
    # while it is followed the process lives: what is over is not read again
    for first, second in cuts if liveness is ALIVE else ():
        stored, done = max(stored, min(first, second)), max(done, first, second)
        write_state(root, parts, liveness, stored, done, holes)
        batches += live.poll()
    write_state(root, parts, liveness, N, N, holes)
    batches += live.poll()
    batches += live.poll()
    live.close()
    (paths,) = discover_run(root).sessions
    whole = read_session(paths)
    followed = np.concatenate([batch.records for batch in batches])
    assert np.array_equal(followed, whole.records)
    last = batches[-1]
    assert lost(last) == lost(whole)
    assert np.array_equal(last.in_flight["record"], whole.in_flight["record"])
    assert np.array_equal(last.comms, whole.comms)
    assert (last.liveness, last.session) == (whole.liveness, whole.identity)
    assert last.is_ended == (liveness is not ALIVE)
