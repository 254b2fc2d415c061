"""Whether a benchmark became slower: by chance and by size, or no verdict."""

from __future__ import annotations

from comminsight.analysis.bench_statistics import permutation_p
from comminsight.model.bench import BenchRecord, BenchRow, Change, RowChange

ALPHA = 0.01  # of all rows of a comparison together
EFFECT_RATIO = 1.1
MIN_REPEATS = 10


def compare_records(first: BenchRecord, second: BenchRecord) -> list[RowChange]:
    """Every row of both: slower or faster only beyond ``EFFECT_RATIO`` and below ``ALPHA`` shared
    by the rows; ``no_verdict`` for fewer than ``MIN_REPEATS`` repeats."""
    after = {(row.collective, row.payload_bytes_per_rank): row for row in second.metrics.rows}
    pairs = [
        (row, after[key])
        for row in first.metrics.rows
        if (key := (row.collective, row.payload_bytes_per_rank)) in after
    ]
    return [_change(one, other, ALPHA / len(pairs)) for one, other in pairs]


def _change(one: BenchRow, other: BenchRow, alpha: float) -> RowChange:
    ratio = other.median_max_rank_ms / one.median_max_rank_ms
    p_value = permutation_p(one.max_rank_ms, other.max_rank_ms)
    if min(len(one.max_rank_ms), len(other.max_rank_ms)) < MIN_REPEATS:
        change = Change.NO_VERDICT
    elif p_value > alpha or 1 / EFFECT_RATIO < ratio < EFFECT_RATIO:
        change = Change.SAME
    else:
        change = Change.SLOWER if ratio > 1 else Change.FASTER
    return RowChange(
        collective=one.collective, payload_bytes_per_rank=one.payload_bytes_per_rank,
        ratio=ratio, p_value=p_value, change=change,
    )  # fmt: skip
