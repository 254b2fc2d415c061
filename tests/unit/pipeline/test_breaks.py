"""Ops that failed for good, seen from the moment of the first failure."""

from dataclasses import replace

import numpy as np
import pytest

from comminsight.capture.session import join_session
from comminsight.format.blackbox import parse_box
from comminsight.model.hang import Liveness
from comminsight.model.manifest import LaunchManifest, ProcessEnd
from comminsight.model.ops import Backend, OpState
from comminsight.pipeline.breaks import at_first_break, last_broken
from comminsight.pipeline.observe import observe, rank_view
from tests.builders.box import box_bytes
from tests.builders.records import allreduce, comm_row, comm_rows, drain, identity, ops


def failed(seq, start_ms, ms):
    return allreduce(seq, start_ms, ms, state=OpState.FAILED)


def session(rank, *rows, liveness=Liveness.CLOSED):
    comms = comm_rows(comm_row(1, [0, 1], rank))
    data = join_session([], parse_box(box_bytes(ops(*rows), comms, identity(rank, 2))))
    return replace(data, liveness=liveness)


def ended(session_data, at_ms, code=0, signal=0):
    return ProcessEnd(
        session_id=session_data.identity.session_id, ended_mono_ns=round(at_ms * 1e6),
        exit_code=code, exit_signal=signal,
    )  # fmt: skip


def test_a_rank_that_gave_up_was_waiting_and_the_one_ended_later_lived():
    gave_up = session(0, allreduce(1, 10), failed(2, 20, 100), drain(3, 130))
    stuck = session(1, allreduce(1, 10), liveness=Liveness.DEAD)
    manifest = LaunchManifest(run_id="r", ends=(ended(gave_up, 140, 1), ended(stuck, 200, 0, 15)))
    seen, at_ns = at_first_break([gave_up, stuck], [manifest])
    assert at_ns == 120_000_000
    assert [s.liveness for s in seen] == [Liveness.ALIVE, Liveness.ALIVE]
    assert [len(s.in_flight) for s in seen] == [1, 0]
    assert OpState.FAILED not in seen[0].records["state"]


def test_a_rank_that_closed_its_recorder_before_has_left():
    waiting = session(0, allreduce(1, 10), failed(2, 20, 5))
    left = session(1, allreduce(1, 10))
    manifest = LaunchManifest(run_id="r", ends=(ended(left, 26), ended(waiting, 90, 1)))
    seen, _ = at_first_break([waiting, left], [manifest])
    assert [s.liveness for s in seen] == [Liveness.ALIVE, Liveness.CLOSED]


@pytest.mark.parametrize(
    ("rows", "n_broken"),
    [
        ((allreduce(1, 10), failed(2, 20, 5)), 1),
        ((failed(1, 20, 5), allreduce(2, 30)), 0),  # the job survived it
        ((failed(1, 20, 5), drain(2, 30)), 1),
        ((allreduce(1, 10),), 0),
    ],
)
def test_only_a_failure_without_a_later_success_counts(rows, n_broken):
    assert len(last_broken(ops(*rows))) == n_broken


def test_without_a_failure_or_a_common_clock_there_is_no_such_moment():
    well = session(0, allreduce(1, 10))
    assert at_first_break([well], []) is None
    broken = session(1, failed(1, 20, 5))
    other = replace(well, identity=identity(0, 2, boot_id="elsewhere"))
    assert at_first_break([broken, other], []) is None
    assert at_first_break([broken, well], []) is not None
    assert np.all(broken.records["state"] == OpState.FAILED)


def nccl_session(rank, *rows):
    """One that closed its recorder in order."""
    comms = comm_rows(comm_row(1, [0, 1], rank, backend=Backend.NCCL))
    data = join_session([], parse_box(box_bytes(ops(*rows), comms, identity(rank, 2))))
    return replace(data, liveness=Liveness.CLOSED)


def aborted(seq, start_ms, ms, **fields):
    return allreduce(seq, start_ms, ms, state=OpState.ABORTED, **fields)


def test_where_all_give_up_alike_who_closed_first_did_not_leave():
    in_kernel = {"n_channels": 2, "channels_started": 2}
    waiting = nccl_session(0, allreduce(1, 10), aborted(2, 20, 3000, **in_kernel))
    absent = nccl_session(1, allreduce(1, 10), drain(2, 3018))
    seen, _ = at_first_break([waiting, absent], [])
    assert [s.liveness for s in seen] == [Liveness.ALIVE, Liveness.ALIVE]
    long_gone = nccl_session(1, allreduce(1, 10), drain(2, 1000))
    seen, _ = at_first_break([waiting, long_gone], [])
    assert [s.liveness for s in seen] == [Liveness.ALIVE, Liveness.CLOSED]


def test_a_call_without_a_task_that_a_teardown_ended_tells_of_no_hang():
    both = [nccl_session(rank, allreduce(1, 10), aborted(2, 20, 3000)) for rank in (0, 1)]
    seen, at_ns = at_first_break(both, [])
    event = observe(seen, now_mono_ns=at_ns, now_real_ns=0, overdue_limit_ns=1_000_000_000)
    assert len(event.in_flight) == 2
    assert event.waiting == ()


def test_giving_up_and_closing_are_nothing_that_a_program_went_on_with():
    left = nccl_session(0, allreduce(1, 10), aborted(2, 20, 3000), drain(3, 3100))
    state = rank_view(left, np.array([-1, 0]), has_own_clock=False).state
    assert state.last_event_ns == 20_000_000
    assert state.last_sign_ns == 3_100_000_000
