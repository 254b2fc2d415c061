"""Bandwidths as nccl-tests define them; knee and plateau only where payloads show them."""

from __future__ import annotations

import pytest

from comminsight.analysis.bench_statistics import bench_row, shape_of


@pytest.mark.parametrize(
    ("collective", "n_ranks", "algbw", "busbw"),
    [
        ("all_reduce", 4, 1.0, 1.5), ("reduce_scatter+all_gather", 4, 1.0, 1.5),
        ("reduce_scatter", 4, 1.0, 0.75), ("all_gather", 4, 4.0, 3.0), ("all_to_all", 4, 1.0, 0.75),
        ("broadcast", 4, 1.0, 1.0), ("send_recv", 4, 1.0, 1.0), ("all_reduce", 2, 1.0, 1.0),
    ],
)  # fmt: skip
def test_bandwidths(collective: str, n_ranks: int, algbw: float, busbw: float) -> None:
    row = bench_row(collective, 1_000_000, [[1.0]] * n_ranks)  # 1 MB in 1 ms
    assert (row.effective_payload_gbps, row.algbw_gbps) == pytest.approx((1.0, algbw))
    assert row.busbw_gbps == pytest.approx(busbw)


def test_the_slowest_rank_of_each_repeat_counts() -> None:
    row = bench_row("all_reduce", 8, [[1.0, 5.0, 1.0], [2.0, 1.0, 3.0]])
    assert row.max_rank_ms == (2.0, 5.0, 3.0)
    assert (row.median_max_rank_ms, row.p95_max_rank_ms) == (3.0, 5.0)


@pytest.mark.parametrize(
    ("waited_ms", "n"),
    [
        ((), -1),
        (([0.0, 0.0, 0.0], [0.0, 0.9, 0.0]), 0),
        (([0.0, 2.0, 0.0], [1.0, 1.0, 0.0]), 2),
        (([0.0, 2.0, 0.0], [-1e-6, -1e-6, -1e-6]), -1),
    ],
)
def test_repeats_in_which_a_rank_waited_for_a_core(
    waited_ms: tuple[list[float], ...], n: int
) -> None:
    row = bench_row("all_reduce", 8, [[2.0, 2.0, 2.0]] * 2, waited_ms)
    assert row.waiting_repeats == n
    assert row.is_disturbed is (n == 2)


def test_ranks_that_wait_for_a_core_show_no_shape() -> None:
    rows = [bench_row("all_reduce", size, [[size / 100] * 2] * 2, [[0, 0], [0, 9 * lost]])
            for size, lost in ((100, 0), (200, 0), (400, 1))]  # fmt: skip
    assert shape_of(rows).latency_knee_bytes is None
    assert shape_of(rows[:2]).latency_knee_bytes == 200


@pytest.mark.parametrize(
    ("times_ms", "knee", "plateau"),
    [
        ([1.0, 1.3, 4.0, 16.0], 16_000, 16_000),
        ([1.0, 1.0, 1.0, 1.0], None, None),  # latency alone
        ([4.0, 1.0, 1.1, 4.1], None, 16_000),  # the smallest payload was disturbed
        ([1.0, 4.0, 1.1, 4.1], None, 16_000),  # a payload between was
        ([1.0, 1.9, 2.0, 3.0], 16_000, None),
    ],
)
def test_shape(times_ms: list[float], knee: int | None, plateau: int | None) -> None:
    rows = [
        bench_row("all_reduce", 1000 * 4**n, [[time_ms]] * 2) for n, time_ms in enumerate(times_ms)
    ]
    shape = shape_of(rows)
    assert (shape.latency_knee_bytes, shape.plateau_from_bytes) == (knee, plateau)
