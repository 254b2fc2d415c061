"""What a batch holds besides ops, and how many ops its records stand for."""

from comminsight.model.ops import EndReason, NoticeReason, Op
from comminsight.model.records import (
    is_change,
    is_ended_op,
    is_fold,
    is_peerless,
    n_calls,
    net_summaries,
    notices,
)
from tests.builders import (
    allreduce,
    drain,
    fold,
    net_summary,
    notice,
    open_marker,
    ops,
    recv,
    send,
    unseen_end,
)

OP = allreduce(1, 1.0)
BATCH = ops(
    OP,
    net_summary(OP, 2, posted_bytes=9, wait_side=1 << 31),
    open_marker(allreduce(0, 2.0, op_seq=2), 3),
    notice(4, 3.0, NoticeReason.COUNTERS, n_captured_calls=5),
    notice(5, 3.0),
    fold(6, 4.0, 20, op_seq=3),
    unseen_end(send(7, 5.0, op_seq=23), EndReason.NO_TASK),
    recv(8, 6.0, peer=1, op_seq=24),
    allreduce(9, 7.0, op_seq=25, n_folded=3),
    drain(10, 8.0),
)


def test_what_each_record_is() -> None:
    assert BATCH["seq"][is_ended_op(BATCH)].tolist() == [1, 6, 7, 8, 9]
    assert BATCH["seq"][is_fold(BATCH)].tolist() == [6]
    assert BATCH["seq"][is_peerless(BATCH)].tolist() == [6, 7]
    assert BATCH["seq"][is_change(BATCH)].tolist() == [5]


def test_a_fold_stands_for_its_calls_and_a_coalesced_collective_for_one() -> None:
    assert n_calls(BATCH).tolist() == [1, 0, 0, 0, 0, 20, 1, 1, 1, 0]


def test_records_that_are_no_ops_are_read_by_their_own_names() -> None:
    (net,) = net_summaries(BATCH)
    assert (net["op"], net["op_seq"], net["posted_bytes"]) == (Op.ALL_REDUCE, 1, 9)
    assert net["wait_side"] == 1 << 31
    assert notices(BATCH)["n_captured_calls"].tolist() == [5, 0]
