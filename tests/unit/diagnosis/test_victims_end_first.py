"""A rank whose op failed because a peer was leaving may be gone before that peer has ended."""

import pytest

from comminsight.diagnosis.killed import judge_killed
from comminsight.model.hang import Liveness
from comminsight.model.verdict import Cause
from tests.unit.diagnosis.events import comm, event, state

CODE, TERM = "exit code 1", "signal 15 (SIGTERM)"
WORLD = (comm(0, (0, 1, 2)),)


def dead(rank, exit_status, *, has_broken):
    return state(rank, Liveness.DEAD, exit_status=exit_status, has_broken=has_broken)


@pytest.mark.parametrize(
    ("ends", "cause", "culprits"),
    [
        # 1 left by itself, and was killed on its way out: 0 had lost it before, and ended first
        ([(CODE, True), (TERM, False), (TERM, True)], Cause.NO_VERDICT, ()),
        ([(CODE, True), (CODE, False), (TERM, True)], Cause.RANK_DEAD, (1,)),
        ([(CODE, False), (TERM, False), (TERM, True)], Cause.RANK_DEAD, (0,)),
        ([(CODE, True), (CODE, True), (CODE, True)], Cause.JOB_KILLED, ()),
        ([(TERM, True), (TERM, False), (TERM, True)], Cause.JOB_KILLED, ()),
    ],
)
def test_only_who_lost_nothing_before_has_failed_by_itself(ends, cause, culprits):
    states = {r: dead(r, status, has_broken=broken) for r, (status, broken) in enumerate(ends)}
    verdict = judge_killed(event(3, [], states=states), WORLD)
    assert (verdict.cause, verdict.culprits) == (cause, culprits)


def test_nor_is_it_named_where_the_one_that_left_had_closed_its_records():
    ends = {0: dead(0, CODE, has_broken=True), 1: state(1, Liveness.CLOSED, exit_status=TERM)}
    ends[2] = state(2, Liveness.CLOSED, exit_status=TERM)
    verdict = judge_killed(event(3, [], states=ends), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
