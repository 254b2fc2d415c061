"""Two ranks that compute and then meet, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.analysis.whatif_edges import RowKind
from comminsight.analysis.whatif_rows import OpReplay, OpRows

COMPUTE, REDUCE = 0, 1


def job(work: list[list[int]], transfer: int = 10, gap: int = 0) -> OpRows:
    """``work[step][rank]`` ns of computing, a gap, then an all-reduce over all ranks."""
    columns: list[tuple[int, ...]] = []
    for step, own in enumerate(work):
        begin = 1000 * step
        meets = begin + max(own) + gap
        for rank, duration in enumerate(own):
            columns.append(
                (step, rank, RowKind.COMPUTE_FORWARD, COMPUTE, -1, 1, begin, begin + duration)
            )
            start = begin + duration + gap
            columns.append((step, rank, RowKind.OTHER, REDUCE, 7, 0, start, meets + transfer))
    data = [np.array(column) for column in zip(*columns, strict=True)]
    data[5] = data[5].astype(bool)
    return OpRows(*data)


def test_the_durations_seen_give_the_steps_seen() -> None:
    rows = job([[100, 140], [100, 160]], gap=5)
    replay = OpReplay(rows)
    assert replay.step_ns([replay.duration_ns], has_gaps=True).ravel().tolist() == [155, 175]
    assert replay.step_ns([replay.duration_ns]).ravel().tolist() == [150, 170]


def test_usual_is_the_mean_of_compute_and_the_median_of_communication() -> None:
    replay = OpReplay(job([[100, 140], [100, 160]]))
    assert set(replay.usual_ns[replay.rows.op_class == COMPUTE].tolist()) == {125}
    assert set(replay.usual_ns[replay.rows.op_class == REDUCE].tolist()) == {10}


def test_slowdown_of_the_job_and_of_each_part_alone() -> None:
    replay = OpReplay(job([[100, 140]]))
    ranks = [replay.rows.rank == rank for rank in (0, 1)]
    assert replay.slowdowns(ranks).tolist() == pytest.approx([150 / 130, 130 / 130, 150 / 130])


def test_what_a_part_explains() -> None:
    replay = OpReplay(job([[100, 100, 100, 180]]))
    slow = replay.explained(replay.rows.rank == 3)
    healthy = replay.explained(replay.rows.rank == 0)
    assert (slow.removed_ratio, slow.alone_ratio) == (1.0, 1.0)
    assert (healthy.removed_ratio, healthy.alone_ratio) == (0.0, 0.0)


def test_a_job_that_loses_nothing_explains_nothing() -> None:
    replay = OpReplay(job([[100, 100]]))
    assert replay.slowdowns().tolist() == [1.0]
    assert replay.explained(replay.rows.rank == 0).removed_ratio == 0


def test_an_end_before_the_last_member_came_is_no_negative_duration() -> None:
    rows = job([[100, 140]])
    rows.end_ns[1] = 120  # a send that is handed over before its receiver is there
    assert OpReplay(rows).duration_ns.min() == 0
