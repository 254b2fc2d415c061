"""Processes that end without closing their recorder: ``os._exit`` is no death, a signal is."""

from dataclasses import replace

import msgspec
import pytest

from comminsight.diagnosis.killed import judge_killed
from comminsight.model.hang import Liveness
from comminsight.model.verdict import Cause
from comminsight.pipeline.ends import as_of, exit_statuses, first_failure
from comminsight.pipeline.facts import run_end
from comminsight.pipeline.load import with_settled_fate
from comminsight.pipeline.observe import killed, observe
from comminsight.pipeline.trace import joined_communicators
from tests.builders.records import comm_row, comm_rows, identity
from tests.unit.pipeline.test_ends import (
    CLOSED,
    CODE_0,
    CODE_1,
    DEAD,
    KILL,
    UNSEEN,
    manifest,
    session,
)

CODE_3 = (3, 0)


def launcher(*ends, code=None, exit_signal=0):
    found = manifest(*ends)
    boot_id = identity(0).boot_id
    return msgspec.structs.replace(found, boot_id=boot_id, exit_code=code, exit_signal=exit_signal)


def judged(ends, code, liveness=DEAD):
    """(end of the run, killed ranks, cause, culprits) of two ranks."""
    comms = comm_rows(comm_row(1, "0-1", me=0))
    manifests = [] if ends is None else [launcher(*ends, code=code)]
    found = [replace(session(rank, liveness=liveness), comms=comms) for rank in (0, 1)]
    settled = [with_settled_fate(one, manifests) for one in found]
    failure = first_failure(settled, manifests)
    then = settled if failure is None else as_of(settled, failure)
    statuses = exit_statuses(manifests)
    event = observe(then, now_mono_ns=9, now_real_ns=0, overdue_limit_ns=5, exit_statuses=statuses)
    verdict = judge_killed(event, joined_communicators(then)[0])
    end = run_end(manifests, [one.liveness for one in settled])
    return end, killed(settled), verdict.cause, verdict.culprits


@pytest.mark.parametrize("liveness", [DEAD, Liveness.UNKNOWN])  # here, or on another machine
@pytest.mark.parametrize(
    ("ends", "code", "expected"),
    [
        # all os._exit(0)
        ([(0, 10, CODE_0), (1, 11, CODE_0)], 0, ("exited", (), Cause.HEALTHY, ())),
        # the same, where their parent was faster than we
        ([(0, 10, UNSEEN), (1, 11, UNSEEN)], 0, ("exited", (), Cause.HEALTHY, ())),
        ([], 0, ("exited", (), Cause.HEALTHY, ())),
        # its own end counts more than that of the command
        ([(0, 10, CODE_0), (1, 11, CODE_0)], 1, ("exited", (), Cause.HEALTHY, ())),
        ([(0, 10, CODE_0), (1, 11, KILL)], 0, ("killed", (1,), Cause.RANK_DEAD, (1,))),
        # a failing status: nobody is first when all fail alike
        ([(0, 10, CODE_3), (1, 11, CODE_3)], 3, ("killed", (0, 1), Cause.JOB_KILLED, ())),
        ([(0, 10, CODE_3), (1, 3000, CODE_1)], 3, ("killed", (0, 1), Cause.RANK_DEAD, (0,))),
        # kill -9 of all
        ([(0, 10, KILL), (1, 11, KILL)], 1, ("killed", (0, 1), Cause.JOB_KILLED, ())),
        ([(0, 10, UNSEEN), (1, 11, UNSEEN)], 137, ("killed", (0, 1), Cause.JOB_KILLED, ())),
    ],
)
def test_only_a_signal_or_a_failing_status_is_a_death(ends, code, liveness, expected):
    assert judged(ends, code, liveness) == expected


@pytest.mark.parametrize("ends", [None, []])
def test_where_nobody_saw_the_end_a_recorder_left_open_tells(ends):
    """No launcher at all, or one that was killed before it wrote an end."""
    assert judged(ends, None) == ("killed", (0, 1), Cause.JOB_KILLED, ())


def test_one_rank_that_leaves_with_0_among_others_that_close():
    ends = launcher((0, 10, CODE_0), (1, 11, CODE_0), code=0)
    left = with_settled_fate(session(0), [ends])
    closed = with_settled_fate(session(1, liveness=CLOSED), [ends])
    assert (left.liveness, closed.liveness) == (CLOSED, CLOSED)
    assert run_end([ends], [left.liveness, closed.liveness]) == "exited"


def test_a_rank_that_a_signal_ended_is_dead_though_the_command_hid_it():
    ends = launcher((0, 10, CODE_0), (1, 11, KILL), code=0)
    assert with_settled_fate(session(1), [ends]).liveness is DEAD
    assert with_settled_fate(session(0), [ends]).liveness is CLOSED
