"""Whether a benchmark became slower: by chance, by size and by its own noise, or no verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from comminsight.analysis.bench_statistics import permutation_p
from comminsight.model.bench import (
    BenchRecord,
    BenchRow,
    Change,
    Comparison,
    Decision,
    Lone,
    RowChange,
)  # fmt: skip

ALPHA = 0.01  # of all rows of a comparison together
EFFECT_RATIO = 1.1
# launches of one state on one machine: medians up to 4.1 times apart, each launch steady in itself
LONE_RATIO = 5.0
MIN_CONTROLS = 4
MIN_REPEATS = 10
SAME_FIELDS = ("workload_id", "algorithm_requested", "warmup")


def compare_records(
    first: BenchRecord, second: BenchRecord, controls: Sequence[BenchRecord] = ()
) -> Comparison:
    """Every row of both: slower or faster only beyond ``EFFECT_RATIO`` and beyond what one launch
    wanders by itself, and below ``ALPHA`` shared by the rows.

    ``controls`` are other launches of the first state: what their medians differ from each other
    is no change either. With fewer than ``MIN_CONTROLS`` only what is beyond ``LONE_RATIO`` is one.

    No verdict for fewer than ``MIN_REPEATS`` repeats or where ranks waited for a core, and none on
    any row where what was measured, how, or on what differs, where another algorithm was asked for,
    or where a launch failed.
    """
    differs = tuple(
        dict.fromkeys(name for one in (second, *controls) for name in _differences(first, one))
    )
    before, after = _rows(first), _rows(second)
    common = [key for key in before if key in after]
    floor = _launch_ratio([first, *controls])
    changes = [_change(before[key], after[key], ALPHA / len(common), floor) for key in common]
    lone = [key for key in before if key not in after] + [key for key in after if key not in before]
    return Comparison(
        differs=differs,
        rows=() if differs else tuple(changes),
        dropped=tuple(Lone(collective=name, payload_bytes_per_rank=size) for name, size in lone),
    )


def _rows(record: BenchRecord) -> dict[tuple[str, int], BenchRow]:
    return {(row.collective, row.payload_bytes_per_rank): row for row in record.metrics.rows}


def _launch_ratio(alike: Sequence[BenchRecord]) -> float:
    """Greatest median over the least of launches that are alike, of the row in which they differ
    most: few launches show too little in a row alone. ``LONE_RATIO`` of too few launches."""
    if len(alike) - 1 < MIN_CONTROLS:
        return LONE_RATIO
    all_rows = [_rows(record) for record in alike]
    common = set.intersection(*(set(rows) for rows in all_rows))
    medians = [[rows[key].median_max_rank_ms for rows in all_rows] for key in common]
    return max((max(ms) / min(ms) if min(ms) > 0 else math.inf for ms in medians), default=math.inf)


def _differences(first: BenchRecord, second: BenchRecord) -> list[str]:
    found = [name for name in SAME_FIELDS if getattr(first, name) != getattr(second, name)]
    profiles = first.environment_profile, second.environment_profile
    keys = sorted(profiles[0].keys() | profiles[1].keys())
    found += [
        f"environment_profile.{key}" for key in keys if profiles[0].get(key) != profiles[1].get(key)
    ]
    if Decision.DISCARD in {first.decision, second.decision}:
        found.append("failure")
    return found


def _change(one: BenchRow, other: BenchRow, alpha: float, floor: float) -> RowChange:
    ratio = other.median_max_rank_ms / one.median_max_rank_ms
    p_value = permutation_p(one.max_rank_ms, other.max_rank_ms)
    threshold = max(EFFECT_RATIO, floor, _wander(one.max_rank_ms), _wander(other.max_rank_ms))
    is_short = min(len(one.max_rank_ms), len(other.max_rank_ms)) < MIN_REPEATS
    if is_short or one.is_disturbed or other.is_disturbed:
        change = Change.NO_VERDICT
    elif p_value > alpha or 1 / threshold < ratio < threshold:
        change = Change.SAME
    else:
        change = Change.SLOWER if ratio > 1 else Change.FASTER
    return RowChange(
        collective=one.collective, payload_bytes_per_rank=one.payload_bytes_per_rank,
        ratio=ratio, threshold_ratio=threshold, p_value=p_value, change=change,
    )  # fmt: skip


def _wander(times: Sequence[float]) -> float:
    """How far the repeats of one launch move or spread: the greater of the ratio of the upper to
    the lower quartile and that of the medians of the first and the last quarter of the repeats."""
    if len(times) < MIN_REPEATS:
        return EFFECT_RATIO
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    part = len(times) // 4
    ends = sorted((statistics.median(times[:part]), statistics.median(times[-part:])))
    return max(high / low, ends[1] / ends[0]) if min(low, ends[0]) > 0 else math.inf
