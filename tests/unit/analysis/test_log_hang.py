"""Counters of watchdogs place ranks; limits alone, mixed counters and stopped watchdogs do not."""

from __future__ import annotations

import pytest

from comminsight.analysis.log_hang import LogHang, log_hang
from comminsight.analysis.log_ranks import ranks_of
from comminsight.model.ops import Op
from tests.unit.analysis.log_texts import job_log

TIMEOUT = (
    "[rank{rank}]: [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL("
    "SeqNum={seq}, OpType={op}, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for {ran_ms} "
    "milliseconds before"
)
PROGRESS = (
    "[rank{rank}]: [PG ID {pg_id} PG GUID {pg_id}({pg}) Rank {place}] Timeout at NCCL work: {seq}, "
    "last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
)
ABSENT = "[2] finished collective #38, but didn't join collective #39 (count from 1)"
STUCK = "[0, 1] joined but didn't finish collective #39 (count from 1)"


def timeout(rank: int, seq: int = 31, op: str = "ALLREDUCE", ran_ms: int = 600_020) -> str:
    return TIMEOUT.format(rank=rank, seq=seq, op=op, ran_ms=ran_ms)


def progress(
    rank: int, seq: int = 31, enqueued: int = 31, pg: str = "default_pg", place: int = -1
) -> str:
    pg_id = 0 if pg == "default_pg" else 2
    return PROGRESS.format(
        rank=rank, pg_id=pg_id, pg=pg, place=rank if place < 0 else place, seq=seq,
        enqueued=enqueued, completed=seq - 1,
    )  # fmt: skip


def seen(*lines: str, world_size: int = 4) -> LogHang:
    logs = (job_log(*lines),)
    return log_hang(logs, ranks_of(logs, world_size), world_size, has_stood=2.0)


def test_ranks_with_counters_wait_in_the_op_that_they_told() -> None:
    event = seen(timeout(0), progress(0), timeout(2), progress(2)).event
    assert [(op.global_rank, op.match_seq, op.op) for op in event.in_flight] == [
        (0, 31, Op.ALL_REDUCE), (2, 31, Op.ALL_REDUCE),
    ]  # fmt: skip
    assert [state.global_rank for state in event.ranks] == [0, 2]
    assert event.communicators[0].members == (0, 1, 2, 3)


def test_a_limit_without_counters_places_nobody() -> None:
    found = seen(timeout(0), timeout(1))
    assert (found.event.in_flight, found.event.ranks, len(found.waited)) == ((), (), 2)


def test_the_kind_of_an_op_is_told_for_all_that_wait_in_it_or_for_none() -> None:
    event = seen(timeout(0), progress(0), progress(1)).event
    assert {op.op for op in event.in_flight} == {Op.UNKNOWN}


def test_the_oldest_op_of_a_group_counts() -> None:
    event = seen(progress(0, seq=33, enqueued=40), progress(0, seq=31, enqueued=39)).event
    assert [op.match_seq for op in event.in_flight] == [31]
    assert [(one.last_entered, one.last_done) for one in event.progress] == [(39, 30)]


def test_a_group_of_which_nobody_tells_the_size_may_have_more_members() -> None:
    event = seen(progress(2, pg="tp", place=0), progress(3, pg="tp", place=1)).event
    assert [one.members for one in event.communicators] == [(2, 3, -1)]


def test_two_groups_of_one_name_are_no_group() -> None:
    event = seen(progress(2, pg="tp", place=0), progress(3, pg="tp", place=0)).event
    assert (event.communicators, event.in_flight) == ((), ())


def test_counters_of_sends_and_receives_place_nobody() -> None:
    event = seen(timeout(0, op="SEND"), progress(0), progress(1, seq=30, enqueued=30)).event
    assert event.in_flight == ()
    assert [one.is_current for one in event.progress] == [False, False]


@pytest.mark.parametrize(("ran_ms", "n_stood"), [(600_100, 0), (1_100_000, 0), (9_000_000, 1)])
def test_a_watchdog_that_stood_still_tells_nothing(ran_ms: int, n_stood: int) -> None:
    found = seen(timeout(0, ran_ms=ran_ms), progress(0))
    assert len(found.stood) == n_stood
    assert bool(found.event.in_flight) is (n_stood == 0)


def test_a_report_on_ranks_out_of_step_counts_where_it_is_of_all_ranks() -> None:
    event = seen(ABSENT, STUCK, world_size=3).event
    assert [(op.global_rank, op.match_seq) for op in event.in_flight] == [(0, 39), (1, 39)]
    assert [(one.global_rank, one.last_entered) for one in event.progress if
            one.global_rank == 2] == [(2, 38)]  # fmt: skip
    assert seen(ABSENT, STUCK, world_size=8).event.in_flight == ()


def test_where_nobody_tells_the_world_it_may_have_more_ranks() -> None:
    found = seen(progress(0), progress(1), world_size=0)
    assert not found.is_world_known
    assert found.event.communicators[0].members == (0, 1, -1)
