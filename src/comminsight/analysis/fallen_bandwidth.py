"""Paths that became slower than they were: bandwidth over windows of steps against its own past.

Each path is its own comparison, so two or three paths are enough; yet at least one must have stayed
as it was, or what changed is no path. The false-alarm rate is that of ``find_shift`` for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.alpha_beta import AlphaBeta, fit_alpha_beta
from comminsight.analysis.bandwidth import (
    CLEAR_DROP,
    MIN_DROP,
    ComparedPaths,
    Path,
    path_of,
    usable,
)
from comminsight.analysis.changepoint import MIN_SIDE, find_shift
from comminsight.model.bandwidth import BandwidthRow, bus_factor

Series = list[BandwidthRow]


@dataclass(frozen=True, slots=True)
class FallenPaths:
    """The paths that fell and those that did not (one row each), and the step of the first fall."""

    paths: ComparedPaths
    first_step: int


def fallen_paths(rows: Iterable[BandwidthRow]) -> FallenPaths | None:
    """None where nothing fell, or where everything did."""
    fallen: dict[Path, tuple[BandwidthRow, float, float]] = {}
    steady: dict[Path, BandwidthRow] = {}
    for series in _series(rows):
        values = np.array([row.busbw_gbs for row in series])
        shift = find_shift(values)
        if shift is not None and shift.after <= (1 - MIN_DROP) * shift.before:
            fallen[path_of(series[0])] = (series[shift.onset], shift.after, shift.before)
        elif shift is None or shift.after >= (1 - CLEAR_DROP) * shift.before:
            steady[path_of(series[0])] = series[-1]
    steady = {path: row for path, row in steady.items() if path not in fallen}
    if not fallen or not steady:
        return None
    after, before = np.median([pair[1:] for pair in fallen.values()], axis=0).tolist()
    onset = min(row.first_step for row, _, _ in fallen.values())
    slow = tuple(row for row, _, _ in fallen.values())
    return FallenPaths(ComparedPaths(slow, tuple(steady.values()), after, before), onset)


def fits_around(
    rows: Sequence[BandwidthRow], path: Path, step: int
) -> tuple[AlphaBeta, AlphaBeta] | None:
    """Startup and rate of a path before ``step`` and from it on; None with fewer than three sizes
    on either side."""
    own = [row for row in usable(rows) if path_of(row) == path and row.first_step >= 0]
    before = _fit([row for row in own if row.last_step < step])
    after = _fit([row for row in own if row.first_step >= step])
    return (before, after) if before is not None and after is not None else None


def _fit(rows: Sequence[BandwidthRow]) -> AlphaBeta | None:
    sizes = np.array([row.size_bytes for row in rows], float)
    factors = np.array([bus_factor(row.op, row.n_members) for row in rows])
    return fit_alpha_beta(sizes, sizes * factors / [row.busbw_gbs for row in rows])


def _series(rows: Iterable[BandwidthRow]) -> list[Series]:
    """Of each op, path and algorithm the largest size moved in enough windows, in their order."""
    found: dict[tuple[object, ...], dict[int, Series]] = defaultdict(lambda: defaultdict(list))
    for row in usable(rows):
        if row.first_step >= 0:
            kind = row.op, path_of(row), row.algorithm, row.protocol
            found[kind][row.size_bytes].append(row)
    series = []
    for sizes in found.values():
        enough = [size for size, own in sizes.items() if len(own) >= 2 * MIN_SIDE]
        if enough:
            series.append(sorted(sizes[max(enough)], key=lambda row: row.first_step))
    return series
