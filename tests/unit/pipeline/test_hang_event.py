"""A view of two ranks, by hand: rank 0 waits in the second all_reduce, rank 1 never entered it."""

from dataclasses import replace

import numpy as np
import pytest

from comminsight.format.layout import SLOT_DTYPE
from comminsight.model.event import OP_DTYPE
from comminsight.model.hang import Liveness, RankState
from comminsight.model.ops import Op, OpFlag, OpState, RecordKind, SlotFlag, TimingSource
from comminsight.pipeline import hang_event as hang_event_module
from comminsight.pipeline.hang_event import RankView, hang_event, in_flight_ops, is_passed, progress

COLL, P2P = RecordKind.COLLECTIVE, RecordKind.P2P


def rows(*items):
    made = np.zeros(len(items), OP_DTYPE)
    for row, (kind, op, comm, peer, match_seq, start, end, state) in zip(made, items, strict=True):
        row["kind"], row["op"], row["comm_index"], row["peer_or_root"] = kind, op, comm, peer
        row["match_seq"], row["start_ns"], row["end_ns"], row["state"] = (
            match_seq,
            start,
            end,
            state,
        )
    return made


def view(rank, finished, in_flight):
    return RankView(
        state=RankState(global_rank=rank, liveness=Liveness.ALIVE),
        records=finished,
        in_flight=in_flight,
        owner_tids=np.arange(len(in_flight)),
        is_overdue=np.ones(len(in_flight), bool),
        comm_ids=np.array([-1, 40, 41], np.int32),
    )


def test_progress_and_in_flight_per_stream():
    first = (COLL, Op.ALL_REDUCE, 1, -1, 1, 10, 20, OpState.DONE)
    sent = (P2P, Op.SEND, 2, 1, 3, 30, 35, OpState.DONE)
    open_marker = (COLL, Op.ALL_REDUCE, 1, -1, 2, 40, 0, OpState.OPEN)
    waiting = (COLL, Op.ALL_REDUCE, 1, -1, 2, 40, 0, OpState.UNKNOWN)
    event = hang_event(
        [view(1, rows(first), rows()), view(0, rows(first, sent, open_marker), rows(waiting))],
        now_mono_ns=100, now_real_ns=0, overdue_limit_ns=50, world_size=2,
    )  # fmt: skip
    assert [state.global_rank for state in event.ranks] == [0, 1]
    (op,) = event.in_flight
    assert (op.global_rank, op.comm_id, op.match_seq, op.age_ns) == (0, 40, 2, 60)
    assert [
        (p.global_rank, p.comm_id, p.peer, p.direction, p.last_entered, p.last_done)
        for p in event.progress
    ] == [(0, 40, -1, 0, 2, 1), (0, 41, 1, Op.SEND, 3, 3), (1, 40, -1, 0, 1, 1)]


def test_a_communicator_without_a_row_stays_unknown():
    event = hang_event(
        [view(0, rows(), rows((COLL, Op.BARRIER, 9, -1, 1, 5, 0, OpState.UNKNOWN)))],
        now_mono_ns=9, now_real_ns=0, overdue_limit_ns=1, world_size=1,
    )  # fmt: skip
    assert event.in_flight[0].comm_id == -1


def numbered(*items):
    made = rows(*items)
    made["seq"] = np.arange(1, len(made) + 1)
    return made


@pytest.mark.parametrize(
    ("complete_from_seq", "is_current"),
    [(1, {40: True, 41: True}), (2, {40: False, 41: True}), (3, {40: False, 41: False}),
     (0, {40: False, 41: False})],
)  # fmt: skip
def test_a_stream_is_current_when_nothing_is_missing_after_its_last_op(
    complete_from_seq, is_current
):
    old = (COLL, Op.ALL_REDUCE, 1, -1, 7, 10, 20, OpState.DONE)
    new = (COLL, Op.ALL_REDUCE, 2, -1, 3, 30, 35, OpState.DONE)
    seen = replace(view(0, numbered(old, new), rows()), complete_from_seq=complete_from_seq)
    assert {p.comm_id: p.is_current for p in progress(seen)} == is_current


def test_a_stream_in_whose_op_the_rank_still_is_is_current():
    waiting = (COLL, Op.ALL_REDUCE, 1, -1, 8, 40, 0, OpState.UNKNOWN)
    lossy = replace(view(0, rows(), rows(waiting)), complete_from_seq=0)
    (stream,) = progress(lossy)
    assert (stream.last_entered, stream.last_done, stream.is_current) == (8, 0, True)


def test_a_stream_that_came_to_rest_long_ago_is_found(monkeypatch):
    monkeypatch.setattr(hang_event_module, "TAIL_RECORDS", 3)
    sent = (P2P, Op.SEND, 2, 1 << 30, 1, 1, 2, OpState.DONE)
    to_root = (COLL, Op.BROADCAST, 2, 3, 5, 1, 2, OpState.DONE)
    moving = [(COLL, Op.ALL_REDUCE, 1, -1, n, n, n + 1, OpState.DONE) for n in range(1, 9)]
    found = progress(view(0, numbered(sent, to_root, *moving), rows()))
    assert [(p.comm_id, p.direction, p.last_done) for p in found] == [
        (40, 0, 8), (41, 0, 5), (41, Op.SEND, 1),
    ]  # fmt: skip


def ended(op_seq, group, source=TimingSource.GPU, comm=1):
    made = rows((COLL, Op.ALL_REDUCE, comm, -1, op_seq, 10, 20, OpState.DONE))
    made["op_seq"], made["group_id"], made["timing_source"] = op_seq, group, source
    return made


@pytest.mark.parametrize(
    ("later", "started", "group", "expected"),
    [
        (ended(5, 9), 0, 8, True),
        (ended(5, 9), 1, 8, True),
        (ended(5, 8), 0, 8, True),  # of one group call, but this one never began
        (ended(5, 8), 1, 8, False),  # they ran together: one channel may be stuck
        (ended(5, 0), 1, 8, False),
        (ended(5, 9), 1, 0, False),
        (ended(3, 9), 0, 8, False),  # an earlier op
        (ended(5, 9, comm=2), 0, 8, False),
        (ended(5, 9, TimingSource.UNKNOWN), 0, 8, False),  # its own end was not seen
        (np.concatenate([ended(5, 9), ended(6, 8)]), 1, 8, True),
        (rows(), 0, 8, False),
    ],
)
def test_an_op_that_a_later_one_has_passed_is_over(later, started, group, expected):
    slots = np.zeros(1, SLOT_DTYPE)
    slots["record"]["comm_index"], slots["record"]["op_seq"] = 1, 4
    slots["record"]["group_id"], slots["started_mask"] = group, started
    slots["slot_flags"] = SlotFlag.NCCL
    assert is_passed(slots, later).tolist() == [expected]
    slots["slot_flags"] = 0  # another door: its ops end in any order
    assert is_passed(slots, later).tolist() == [False]


def test_replays_are_streams_of_their_own():
    call = (COLL, Op.ALL_GATHER, 1, -1, 3, 30, 35, OpState.DONE)
    replay = (COLL, Op.ALL_REDUCE, 1, -1, 2, 10, 20, OpState.DONE)
    sent = (P2P, Op.SEND, 1, 4, 5, 10, 20, OpState.DONE)
    records = numbered(call, replay, sent, sent)
    records["flags"][[1, 3]] = OpFlag.GRAPH
    waiting = rows((COLL, Op.ALL_REDUCE, 1, -1, 3, 40, 0, OpState.UNKNOWN))
    waiting["flags"] = OpFlag.GRAPH
    seen = view(0, records, waiting)
    assert [(p.is_replay, p.peer, p.last_entered, p.last_done) for p in progress(seen)] == [
        (False, -1, 3, 3), (False, 4, 5, 5), (True, -1, 3, 2), (True, 4, 5, 5),
    ]  # fmt: skip
    assert [op.is_replay for op in in_flight_ops(seen, 100)] == [True]


@pytest.mark.parametrize(
    ("slot_flags", "later_flags", "expected"),
    [(0, 0, True), (OpFlag.GRAPH, OpFlag.GRAPH, True), (OpFlag.GRAPH, 0, False),
     (0, OpFlag.GRAPH, False)],
)  # fmt: skip
def test_only_what_is_told_in_order_passes_an_op(slot_flags, later_flags, expected):
    later = ended(5, 9)
    later["flags"] = later_flags
    slots = np.zeros(1, SLOT_DTYPE)
    slots["record"]["comm_index"], slots["record"]["op_seq"] = 1, 4
    slots["record"]["flags"], slots["slot_flags"] = slot_flags, SlotFlag.NCCL
    assert is_passed(slots, later).tolist() == [expected]
