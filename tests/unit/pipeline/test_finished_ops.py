"""What is over on one rank while another is still in it, and calls in the order of the program."""

import numpy as np
import pytest

from comminsight.analysis.call_order import OrderedCall
from comminsight.model.event import OP_DTYPE
from comminsight.model.hang import Liveness, RankState
from comminsight.model.ops import Op, OpFlag, OpState, RecordKind
from comminsight.model.topology import CommRole, Communicator
from comminsight.pipeline.call_order import ordered_calls
from comminsight.pipeline.finished_ops import finished_ops
from comminsight.pipeline.hang_event import RankView, in_flight_ops

COLL, P2P = RecordKind.COLLECTIVE, RecordKind.P2P
GROUPS = [
    Communicator(
        comm_id=40, comm_hash=7, ordinal=0, members=(2, 3), desc="pp", role=CommRole.PP,
        is_role_inferred=False,
    ),
]  # fmt: skip


def rows(*items):
    """(kind, comm_index, match_seq, start_ns, size_bytes, state, flags)"""
    made = np.zeros(len(items), OP_DTYPE)
    names = ("kind", "comm_index", "match_seq", "start_ns", "size_bytes", "state", "flags")
    for row, item in zip(made, items, strict=True):
        for name, value in zip(names, item, strict=True):
            row[name] = value
    made["op"] = np.where(made["kind"] == P2P, Op.RECV, Op.ALL_REDUCE)
    made["seq"] = np.arange(1, len(made) + 1)
    return made


def view(rank, ended, in_flight, complete_from_seq=1):
    return RankView(
        state=RankState(global_rank=rank, liveness=Liveness.ALIVE),
        records=ended,
        in_flight=in_flight,
        owner_tids=np.arange(len(in_flight)),
        is_overdue=np.ones(len(in_flight), bool),
        comm_ids=np.array([-1, 40, 41], np.int32),
        complete_from_seq=complete_from_seq,
    )


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        ((COLL, 1, 2, 5, 96, OpState.DONE, 0), [(1, 2, 96)]),
        ((COLL, 1, 2, 5, 96, OpState.FAILED, 0), [(1, 2, 96)]),
        ((COLL, 1, 1, 5, 96, OpState.DONE, 0), []),  # nobody is in that one
        ((COLL, 2, 2, 5, 96, OpState.DONE, 0), []),  # another communicator
        ((COLL, 1, 2, 5, 96, OpState.DONE, OpFlag.GRAPH), []),  # a replay is numbered apart
        ((COLL, 1, 2, 5, 96, OpState.OPEN, 0), []),  # a marker is no end
        ((P2P, 1, 2, 5, 96, OpState.DONE, 0), []),
    ],
)
def test_only_ends_of_what_somebody_is_in(ended, expected):
    waiting = view(0, rows(), rows((COLL, 1, 2, 4, 64, OpState.UNKNOWN, 0)))
    views = [waiting, view(1, rows(ended), rows())]
    found = finished_ops(views, in_flight_ops(waiting, 9), 9)
    assert [(op.global_rank, op.match_seq, op.size_bytes) for op in found] == expected


def test_calls_come_in_the_order_in_which_they_began():
    """Records are written at their ends: what began first may come last, or be open."""
    ended = rows((COLL, 2, 1, 30, 8, OpState.DONE, 0), (COLL, 1, 1, 10, 8, OpState.DONE, 0))
    inside = rows((COLL, 1, 2, 20, 8, OpState.UNKNOWN, 0), (P2P, 1, 1, 15, 8, OpState.UNKNOWN, 0))
    assert ordered_calls([view(3, ended, inside)], GROUPS) == {
        3: [
            OrderedCall(40, 1, False), OrderedCall(40, 1, True, source=0, target=1),
            OrderedCall(40, 2, True), OrderedCall(41, 1, False),
        ]
    }  # fmt: skip


def test_a_message_in_a_group_of_unknown_members_has_no_place_in_the_order():
    inside = rows((P2P, 2, 1, 15, 8, OpState.UNKNOWN, 0), (COLL, 2, 1, 20, 8, OpState.UNKNOWN, 0))
    assert ordered_calls([view(3, rows(), inside)], GROUPS) == {3: [OrderedCall(41, 1, True)]}


@pytest.mark.parametrize(("complete_from_seq", "numbers"), [(0, []), (1, [1, 2]), (2, [2])])
def test_only_what_came_after_the_last_loss_counts(complete_from_seq, numbers):
    ended = rows((COLL, 1, 1, 1, 8, OpState.DONE, 0), (COLL, 1, 2, 2, 8, OpState.DONE, 0))
    calls = ordered_calls([view(0, ended, rows(), complete_from_seq)], GROUPS)[0]
    assert [call.match_seq for call in calls] == numbers
