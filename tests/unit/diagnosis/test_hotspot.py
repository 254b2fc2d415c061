"""What the time of an exposed op goes into, and the advice for it."""

from __future__ import annotations

from dataclasses import replace

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


@pytest.mark.parametrize(
    ("late_ratio", "late_rank", "is_told"),
    [(0.3, 5, True), (0.29, 5, False), (1.0, 0, True), (0.0, -1, False)],
)
def test_lateness_comes_before_the_advice_for_the_op(
    late_ratio: float, late_rank: int, is_told: bool
) -> None:
    trace = calls(Op.ALL_REDUCE, [KB], 10)
    (one,) = exposed_ops(trace, exposures(trace))
    late_ns = round(one.exposed_ns * late_ratio)
    found = judged_op(
        replace(one, late_ns=late_ns, late_rank=late_rank), one.exposed_ns, is_compute_known=True
    )
    late = [message.params for message in found.advice if message.code == codes.ADVICE_LATE]
    assert late == ([{"ratio": pytest.approx(late_ratio), "rank": late_rank}] if is_told else [])
    assert found.advice[0].code == (codes.ADVICE_LATE if is_told else codes.ADVICE_ALL_REDUCE)
    assert (found.late_ns, found.late_rank) == (late_ns, late_rank)
