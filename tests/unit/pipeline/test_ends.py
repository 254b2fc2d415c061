"""Which process failed first, from the ends that the launchers saw."""

from dataclasses import replace

import numpy as np
import pytest

from comminsight.capture.session import SessionData
from comminsight.format.layout import SLOT_DTYPE
from comminsight.model.hang import Liveness
from comminsight.model.manifest import LaunchManifest, ProcessEnd
from comminsight.model.ops import OpState
from comminsight.model.tally import Tally
from comminsight.pipeline.ends import as_of, exit_statuses, first_failure, status_text
from tests.builders.records import allreduce, comm_rows, identity, ops

MS = 1_000_000
KILL, TERM, CODE_1, CODE_0, UNSEEN = (0, 9), (0, 15), (1, 0), (0, 0), (-1, -1)
DEAD, CLOSED, ALIVE = Liveness.DEAD, Liveness.CLOSED, Liveness.ALIVE


def session(rank, *, liveness=DEAD, last=OpState.DONE):
    return SessionData(
        identity=identity(rank),
        comms=comm_rows(),
        records=ops(allreduce(1, 1.0), allreduce(2, 5.0, state=last)),
        losses=np.zeros((1, 1), np.int64),
        in_flight=np.zeros(0, SLOT_DTYPE),
        liveness=liveness,
        tally=Tally(),
        settings={},
        clock_pairs=np.zeros((0, 2), np.int64),
    )


def manifest(*ends, **fields):
    """``ends`` are (rank, milliseconds, (exit code, signal))."""
    seen = tuple(
        ProcessEnd(
            session_id=identity(rank).session_id, ended_mono_ns=at_ms * MS,
            exit_code=code, exit_signal=number,
        )
        for rank, at_ms, (code, number) in ends
    )  # fmt: skip
    return LaunchManifest(run_id="run-1", ends=seen, **fields)


@pytest.mark.parametrize(
    ("ends", "broken", "first"),
    [
        # a launcher loses one rank and ends the others
        ([(2, 10, KILL), (0, 90, TERM), (1, 91, TERM)], (), 2),
        ([(2, 10, CODE_1), (0, 90, TERM), (1, 91, TERM)], (0, 1), 2),
        # peers fail by themselves in the op that the first one left
        ([(2, 10, CODE_1), (0, 15, CODE_1), (1, 16, CODE_1)], (0, 1), 2),
        # a launcher that has to kill: later than together
        ([(2, 10, KILL), (0, 30_010, KILL), (1, 30_011, KILL)], (), 2),
        # ranks that had ended well before are no failure
        ([(1, 5, CODE_0), (2, 10, CODE_1), (0, 90, TERM)], (), 2),
        # killed at once, by one hand
        ([(2, 10, KILL), (0, 12, KILL), (1, 13, KILL)], (), None),
        ([(0, 10, TERM), (1, 12, TERM), (2, 13, TERM)], (), None),
        # asked to end, then killed
        ([(0, 10, TERM), (1, 500, KILL), (2, 501, KILL)], (), None),
        # the first to go had been hurt by somebody who lived longer
        ([(2, 10, CODE_1), (0, 90, TERM), (1, 91, TERM)], (2,), None),
        # its status was not seen: it may have been asked to end
        ([(2, 10, UNSEEN), (0, 90, TERM), (1, 91, TERM)], (), None),
        ([(0, 10, CODE_0), (1, 12, CODE_0), (2, 13, CODE_0)], (), None),
        ([(2, 10, KILL)], (), None),
        ([], (), None),
    ],
)
def test_first_failure(ends, broken, first):
    sessions = [
        session(rank, last=OpState.FAILED if rank in broken else OpState.DONE) for rank in range(3)
    ]
    found = first_failure(sessions, [manifest(*ends)])
    assert (found.session_id if found else None) == (
        None if first is None else identity(first).session_id
    )


@pytest.mark.parametrize(
    ("status", "is_named"),
    [(KILL, True), ((0, 11), True), ((0, 6), False), (CODE_1, False)],
)
def test_a_rank_that_gave_up_waiting_is_no_origin(status, is_named):
    waiting = replace(session(2), in_flight=np.zeros(1, SLOT_DTYPE))
    ends = manifest((2, 10, status), (0, 90, TERM))
    assert (first_failure([session(0), waiting], [ends]) is not None) == is_named


def test_nodes_are_compared_on_wall_time():
    late_boot = manifest((2, 10, KILL), started_real_ns=0, started_mono_ns=0)
    early_boot = manifest((0, 4000, TERM), started_real_ns=0, started_mono_ns=3950 * MS)
    found = first_failure([session(0), session(2)], [early_boot, late_boot])
    assert found is not None
    assert found.session_id == identity(2).session_id


def test_the_sessions_as_they_stood_at_the_failure():
    sessions = (
        session(0, last=OpState.FAILED),
        session(1, liveness=CLOSED, last=OpState.ABORTED),
        session(2, liveness=CLOSED),
        session(3, liveness=CLOSED),
    )
    ends = [(3, 1, CODE_0), (2, 10, CODE_1), (0, 90, TERM), (1, 91, CODE_1)]
    failure = first_failure(sessions, [manifest(*ends)])
    then = as_of(sessions, failure)
    assert [s.liveness for s in then] == [ALIVE, ALIVE, DEAD, CLOSED]
    assert [len(s.in_flight) for s in then] == [1, 1, 0, 0]
    assert [len(s.records) for s in then] == [1, 1, 2, 2]
    assert then[0].in_flight["record"]["match_seq"].tolist() == [2]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (KILL, "signal 9 (SIGKILL)"),
        (TERM, "signal 15 (SIGTERM)"),
        ((0, 63), "signal 63 (unnamed)"),
        (CODE_1, "exit code 1"),
        (CODE_0, "exit code 0"),
        (UNSEEN, ""),
    ],
)
def test_status_in_words(status, text):
    code, number = status
    end = ProcessEnd(session_id="s", ended_mono_ns=1, exit_code=code, exit_signal=number)
    assert status_text(end) == text
    assert exit_statuses([LaunchManifest(run_id="r", ends=(end,))]) == ({"s": text} if text else {})
