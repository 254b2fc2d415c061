"""Steps of traces on the wall clock."""

from __future__ import annotations

from msgspec.structs import replace

from comminsight.analysis.activity_steps import activity_steps
from comminsight.model.ops import Op
from tests.builders.activities import T0, comm, compute


def test_a_step_lasts_until_the_next_one_begins() -> None:
    own = [
        compute(3, 0, 50, step=4), comm(3, Op.ALL_REDUCE, 20, 60, step=4),
        comm(3, Op.ALL_REDUCE, 130, 5, step=5), compute(3, 100, 50, step=5),
        compute(3, 300, 50, step=6), compute(3, 900, 50, step=8), compute(3, 990, 50, step=9),
    ]  # fmt: skip
    (found,) = activity_steps(own)
    assert (found.global_rank, found.steps) == (3, (4, 5, 8))
    assert [start - T0 for start in found.start_ns] == [0, 100_000, 900_000]
    assert [end - T0 for end in found.end_ns] == [100_000, 300_000, 990_000]


def test_stamps_of_another_clock_and_activities_without_a_step() -> None:
    since_boot = [
        replace(compute(0, k, 1, step=k), start_ns=k * 1000 + 5, end_ns=k * 1000 + 9)
        for k in range(4)
    ]
    outside = [compute(1, k, 1, step=-1) for k in range(4)]
    nobodys = [compute(-1, k, 1, step=k) for k in range(4)]
    assert activity_steps([*since_boot, *outside, *nobodys]) == ()
