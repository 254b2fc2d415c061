"""Ops of a trace: each is written or counted among what is not, with the reason."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.ops import Op
from comminsight.semantics.imported_ops import ops_by_rank
from tests.builders.activities import comm, compute

OP = comm(3, Op.ALL_REDUCE, 10, 5)
UNKNOWN = Activity(
    global_rank=3, kind=ActivityKind.COMMUNICATION, name="ncclKernel_X",
    start_ns=OP.start_ns, end_ns=OP.end_ns,
)  # fmt: skip


@pytest.mark.parametrize(
    ("one", "written", "bad", "dropped"),
    [
        (OP, 1, 0, {}),
        (UNKNOWN, 0, 0, {"unknown_op": 1}),
        (replace(OP, end_ns=0), 0, 0, {"no_end": 1}),
        (replace(UNKNOWN, end_ns=0), 0, 0, {"unknown_op": 1}),
        (replace(OP, end_ns=OP.start_ns - 1), 0, 1, {}),
        (replace(UNKNOWN, end_ns=OP.start_ns - 1), 0, 0, {"unknown_op": 1}),
    ],
)
def test_each_op_is_counted_once(
    one: Activity, written: int, bad: int, dropped: dict[str, int]
) -> None:
    (found,) = ops_by_rank([OP, one, compute(3, 0, 10)], world_size=4, sources={})
    assert (found.n_read, len(found.ops), found.n_bad) == (2, 1 + written, bad)
    assert dict(found.dropped) == dropped
    assert found.n_read == len(found.ops) + found.n_bad + Counter(found.dropped).total()


def test_a_rank_that_is_not_known_is_no_rank() -> None:
    assert ops_by_rank([replace(OP, global_rank=-1)], world_size=4, sources={}) == ()
