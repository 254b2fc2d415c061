"""What the time of an exposed op goes into, and the advice for it."""

from __future__ import annotations

import pytest

from comminsight.analysis.exposed import exposed_ops
from comminsight.analysis.exposure import exposures
from comminsight.diagnosis import codes_exposed as codes
from comminsight.diagnosis.hotspot import judged_op
from comminsight.model.activity import Activity
from comminsight.model.exposed import Bound, OpExposure
from comminsight.model.ops import Op
from tests.builders.activities import comm

STARTUP_US, GBS = 20.0, 10.0


def calls(op: Op, sizes: list[int], n_each: int) -> list[Activity]:
    """Calls of these sizes in one step, each as long as startup and rate make it."""
    made, at = [], 0.0
    for size in sizes * n_each:
        length = STARTUP_US + size / GBS / 1e3
        made.append(comm(0, op, at, length, size_bytes=size))
        at += length + 1
    return made


def judged(trace: list[Activity]) -> OpExposure:
    (one,) = exposed_ops(trace, exposures(trace))
    return judged_op(one, one.exposed_ns, is_compute_known=True)


KB = 1 << 10


@pytest.mark.parametrize(
    ("sizes", "n_each", "bound", "code"),
    [
        ([KB, 2 * KB, 4 * KB], 2, Bound.STARTUP, codes.ADVICE_STARTUP),
        ([KB, 2 * KB, 4 * KB], 10, Bound.FREQUENCY, codes.ADVICE_FREQUENCY),
        ([KB << 10, KB << 11, KB << 12], 10, Bound.BANDWIDTH, codes.ADVICE_BANDWIDTH),
    ],
)
def test_bound(sizes: list[int], n_each: int, bound: Bound, code: str) -> None:
    found = judged(calls(Op.ALL_REDUCE, sizes, n_each))
    assert found.bound is bound
    assert [one.code for one in found.advice] == [codes.ADVICE_ALL_REDUCE, code]
    assert found.n_calls == len(sizes) * n_each


@pytest.mark.parametrize("sizes", [[KB], [KB, 2 * KB], [0, 0, 0]])
def test_few_sizes_tell_no_bound(sizes: list[int]) -> None:
    found = judged(calls(Op.ALL_TO_ALL, sizes, 4))
    assert (found.bound, found.startup_ratio) == (Bound.UNKNOWN, None)
    assert [one.code for one in found.advice] == [codes.ADVICE_ALL_TO_ALL]


@pytest.mark.parametrize(
    ("op", "code"),
    [
        (Op.ALL_GATHER, codes.ADVICE_ALL_GATHER),
        (Op.REDUCE_SCATTER, codes.ADVICE_REDUCE_SCATTER),
        (Op.BROADCAST, codes.ADVICE_OTHER),
        (Op.UNKNOWN, codes.ADVICE_OTHER),
    ],
)
def test_advice_follows_the_collective(op: Op, code: str) -> None:
    assert judged(calls(op, [KB], 1)).advice[0].code == code
