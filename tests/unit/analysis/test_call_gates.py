"""Who was awaited in a call, op by op, and where nobody is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comminsight.analysis.call_gates import DOUBTS, KNOWN, CallGates, MatchedCalls, call_gates
from comminsight.model.exposed import OwnerDoubt
from comminsight.model.ops import Op

END = 100


def one_instance(
    op: Op, starts: list[int], root: int = -1, ops: np.ndarray | None = None, **more: Any
) -> CallGates:
    """Rank 10 + i starts at ``starts[i]``; all end at ``END``."""
    n = len(starts)
    columns: dict[str, Any] = {
        "rank": np.arange(10, 10 + n),
        "instance": np.zeros(n, np.int64),
        "op": np.full(n, int(op)) if ops is None else ops,
        "start_ns": np.array(starts, np.int64),
        "end_ns": np.full(n, END, np.int64),
        "is_root": np.arange(n) == root,
        "doubt": np.full(n, KNOWN),
        "error_ns": np.zeros(n, np.int64),
    }
    return call_gates(MatchedCalls(**{**columns, **more}))


def told(found: CallGates) -> list[tuple[int, int, int, OwnerDoubt | None]]:
    """(late rank, gate, alone from, doubt) of each call."""
    return [
        (rank, gate, alone, None if doubt == KNOWN else DOUBTS[doubt])
        for rank, gate, alone, doubt in zip(
            found.late_rank.tolist(), found.gate_ns.tolist(), found.alone_ns.tolist(),
            found.doubt.tolist(), strict=True,
        )
    ]  # fmt: skip


@pytest.mark.parametrize("op", [Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL])
def test_all_wait_for_the_last(op: Op) -> None:
    found = one_instance(op, [3, 40, 7])
    assert told(found) == [(11, 40, 7, None), (-1, 40, 40, None), (11, 40, 7, None)]
    assert found.late_row.tolist() == [1, -1, 1]


@pytest.mark.parametrize("op", [Op.BROADCAST, Op.SCATTER])
def test_members_wait_for_the_root_and_nobody_is_named_for_the_root_itself(op: Op) -> None:
    found = told(one_instance(op, [3, 40, 50], root=1))
    assert found[0] == (11, 40, 3, None)
    assert found[1] == (-1, 50, 50, OwnerDoubt.DEPENDS)
    assert found[2] == (-1, 50, 50, None)


@pytest.mark.parametrize("op", [Op.REDUCE, Op.GATHER])
def test_a_root_that_collects_waits_for_the_last(op: Op) -> None:
    found = told(one_instance(op, [3, 40, 7], root=0))
    assert found[0] == (11, 40, 7, None)
    assert [one[0] for one in found] == [11, -1, -1]
    assert found[2][3] is OwnerDoubt.DEPENDS


@pytest.mark.parametrize(
    ("recv_ns", "send_ns", "receiver", "sender"),
    [
        (3, 40, (11, 40, 3, None), (-1, 40, 40, None)),
        (40, 3, (-1, 40, 40, None), (-1, 40, 40, OwnerDoubt.DEPENDS)),
    ],
)
def test_a_receiver_waits_for_its_sender_and_nobody_is_named_for_a_sender(
    recv_ns: int, send_ns: int, receiver: object, sender: object
) -> None:
    found = one_instance(Op.UNKNOWN, [recv_ns, send_ns], ops=np.array([int(Op.RECV), int(Op.SEND)]))
    assert told(found) == [receiver, sender]


@pytest.mark.parametrize("op", [Op.UNKNOWN, Op.SEND])
def test_an_op_that_need_not_wait_names_nobody(op: Op) -> None:
    assert told(one_instance(op, [3, 40]))[0] == (-1, 40, 40, OwnerDoubt.DEPENDS)


@pytest.mark.parametrize(
    ("starts", "error_ns", "expected"),
    [
        ([3, 40, 7], 32, [11, -1, 11]),
        ([3, 40, 7], 33, [-1, -1, -1]),  # the second last is as near as the clocks are apart
        ([3, 40, 40], 0, [-1, -1, -1]),  # two at once
        ([5, 5, 5], 0, [-1, -1, -1]),
    ],
)
def test_clocks_that_do_not_tell_who_was_last(
    starts: list[int], error_ns: int, expected: list[int]
) -> None:
    found = one_instance(Op.ALL_REDUCE, starts, error_ns=np.full(3, error_ns))
    assert found.late_rank.tolist() == expected
    doubts = {told(found)[row][3] for row in range(3) if starts[row] < max(starts)}
    assert doubts <= {OwnerDoubt.CLOCKS, None}
    assert (OwnerDoubt.CLOCKS in doubts) == (expected == [-1] * 3 and len(set(starts)) > 1)


@pytest.mark.parametrize("doubt", list(OwnerDoubt))
def test_a_doubted_instance_is_unknown_to_its_end(doubt: OwnerDoubt) -> None:
    found = one_instance(Op.ALL_REDUCE, [3, 40], doubt=np.full(2, DOUBTS.index(doubt)))
    assert told(found) == [(-1, END, END, doubt)] * 2


def test_instances_do_not_mix() -> None:
    found = one_instance(
        Op.ALL_REDUCE, [0, 9, 50, 20], instance=np.array([0, 0, 1, 1]),
    )  # fmt: skip
    assert found.late_rank.tolist() == [11, -1, -1, 12]
    assert found.alone_ns.tolist() == [0, 9, 50, 20]


def test_no_calls() -> None:
    assert len(one_instance(Op.ALL_REDUCE, []).gate_ns) == 0
