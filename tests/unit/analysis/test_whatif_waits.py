"""Ends that are waited for, and ends that only happen to come before."""

from __future__ import annotations

import numpy as np

from comminsight.analysis.whatif_waits import steady_waits

STEPS, RANKS = 20, 4


def two_ops(*, waits: bool, late_rank: int = -1) -> tuple[np.ndarray, ...]:
    """(start, end, entry) of two ops; the second starts 5000 after the end of the first, or 9000
    after its start whatever the end. The ends lie about 2000 after the starts, the same for all."""
    rng = np.random.default_rng(3)
    work = rng.normal(5000 if waits else 9000, 50, (STEPS, RANKS))
    if late_rank >= 0:
        work[:, late_rank] += 1500
    start = np.zeros((STEPS, RANKS, 2), np.int64)
    end = np.zeros_like(start)
    end[:, :, 0] = rng.normal(2000, 300, (STEPS, 1))
    start[:, :, 1] = (end[:, :, 0] if waits else start[:, :, 0]) + work.astype(np.int64)
    end[:, :, 1] = start[:, :, 1] + 100
    return start, end, np.zeros((STEPS, RANKS), np.int64)


def test_a_start_that_moves_with_an_end_waits_for_it() -> None:
    lags, work = steady_waits(*two_ops(waits=True))
    assert lags.tolist() == [0, 1]
    assert 4800 < work[:, :, 1].min() < work[:, :, 1].max() < 5200


def test_an_end_that_only_comes_before_is_not_waited_for() -> None:
    lags, work = steady_waits(*two_ops(waits=False))
    assert lags.tolist() == [0, 0]
    assert work[:, :, 1].min() > 8800


def test_a_late_rank_does_not_hide_either() -> None:
    assert steady_waits(*two_ops(waits=True, late_rank=1))[0].tolist() == [0, 1]
    assert steady_waits(*two_ops(waits=False, late_rank=1))[0].tolist() == [0, 0]


def test_without_any_variation_an_end_counts_as_waited_for() -> None:
    start, end, entry = two_ops(waits=True)
    start[:], end[:] = start[0], end[0]
    assert steady_waits(start, end, entry)[0].tolist() == [0, 1]


def test_a_contradicted_end_is_never_waited_for() -> None:
    start, end, entry = two_ops(waits=True)
    end[3, 2, 0] = start[3, 2, 1] + 1
    assert steady_waits(start, end, entry)[0].tolist() == [0, 0]
