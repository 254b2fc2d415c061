"""Cost models out of rows of bandwidth: one for each op, tier, group size, algorithm and protocol.

The time of a row is ``bytes * bus factor / bus bandwidth`` (nccl-tests' definitions read back). No
model is told where fewer than three sizes were measured, or where they span less than a factor of
eight: a line through a narrow cloud has any startup.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from comminsight.analysis.alpha_beta import (
    MIN_SIZES,
    AlphaBeta,
    crossover,
    fit_alpha_beta,
    has_drifted,
    observed_ratios,
)
from comminsight.analysis.bandwidth import usable
from comminsight.model.bandwidth import BandwidthRow, bus_factor
from comminsight.model.cost_model import CostDrift, CostFit, CrossoverRow, GroupTier, NoFit

MIN_SPAN_RATIO = 8.0
MIDDLE_PCT = (5, 95)
Kind = tuple[int, GroupTier, int, str, str, str]  # op, tier, ranks, algorithm, protocol, run
Points = tuple[np.ndarray, np.ndarray]  # sizes and times


def tier_of(row: BandwidthRow) -> GroupTier:
    """By the hosts of the row; UNKNOWN where they are not told."""
    if not row.hosts or not _n_ranks(row):
        return GroupTier.UNKNOWN
    if len(row.hosts) == 1:
        return GroupTier.NODE
    return GroupTier.RAIL if len(row.hosts) == _n_ranks(row) else GroupTier.ACROSS


def cost_fits(rows: Iterable[BandwidthRow]) -> list[CostFit]:
    """One for each population, in a fixed order, also for those that have no model."""
    return [_cost_fit(kind, points) for kind, points in sorted(_populations(rows).items())]


def crossovers(rows: Iterable[BandwidthRow]) -> list[CrossoverRow]:
    """Where two ways to run the same op cross within one run, inside the sizes that both were
    measured at: beyond them nothing is known."""
    by_op: dict[tuple[object, ...], list[tuple[Kind, Points]]] = defaultdict(list)
    for kind, points in sorted(_populations(rows).items()):
        if _no_fit(points[0]) is None and (kind[3] or kind[4]):
            by_op[(*kind[:3], kind[5])].append((kind, points))
    found = []
    for ways in by_op.values():
        for one, other in combinations(ways, 2):
            row = _crossover(one, other)
            if row is not None:
                found.append(row)
    return found


def _populations(rows: Iterable[BandwidthRow]) -> dict[Kind, Points]:
    made: dict[Kind, list[tuple[float, float]]] = defaultdict(list)
    for row in usable(list(rows)):
        n = _n_ranks(row)
        if row.size_bytes > 0 and (n or not _hangs_on_ranks(row.op)):
            time_ns = row.size_bytes * bus_factor(row.op, n) / row.busbw_gbs
            kind = row.op, tier_of(row), n, row.algorithm, row.protocol, row.run
            made[kind].append((row.size_bytes, time_ns))
    arrays = {kind: np.array(own, float) for kind, own in made.items()}
    return {kind: (own[:, 0], own[:, 1]) for kind, own in arrays.items()}


def _n_ranks(row: BandwidthRow) -> int:
    return row.n_ranks or len(row.ranks)


def _hangs_on_ranks(op: int) -> bool:
    """True where the time cannot be told from the bus bandwidth alone."""
    return bus_factor(op, 4) != 1.0


def _no_fit(sizes: np.ndarray) -> NoFit | None:
    if len(np.unique(sizes)) < MIN_SIZES:
        return NoFit.FEW_SIZES
    return NoFit.NARROW if sizes.max() < MIN_SPAN_RATIO * sizes.min() else None


def _cost_fit(kind: Kind, points: Points) -> CostFit:
    sizes, times = points
    op, tier, n_ranks, algorithm, protocol, run = kind
    empty = CostFit(
        op=op, tier=tier, n_ranks=n_ranks, algorithm=algorithm, protocol=protocol, run=run,
        n_rows=len(sizes), smallest_bytes=int(sizes.min()), largest_bytes=int(sizes.max()),
        no_fit=_no_fit(sizes),
    )  # fmt: skip
    fit = fit_alpha_beta(sizes, times) if empty.no_fit is None else None
    if fit is None:
        return empty
    low, high = np.percentile(observed_ratios(fit, sizes, times), MIDDLE_PCT).tolist()
    return CostFit(
        op=op, tier=tier, n_ranks=n_ranks, algorithm=algorithm, protocol=protocol, run=run,
        n_rows=len(sizes), smallest_bytes=empty.smallest_bytes, largest_bytes=empty.largest_bytes,
        startup_ns=fit.latency_ns, startup_low_ns=fit.latency_low_ns,
        startup_high_ns=fit.latency_high_ns, rate_gbs=fit.rate_gbs,
        rate_low_gbs=fit.rate_low_gbs, rate_high_gbs=fit.rate_high_gbs,
        half_bytes=fit.latency_ns * fit.rate_gbs, low_ratio=low, high_ratio=high,
    )  # fmt: skip


def _crossover(one: tuple[Kind, Points], other: tuple[Kind, Points]) -> CrossoverRow | None:
    (kind, points), (other_kind, other_points) = one, other
    found = crossover(points, other_points)
    if found is None:
        return None
    low = max(points[0].min(), other_points[0].min())
    high = min(points[0].max(), other_points[0].max())
    if not low <= found.size_bytes <= high:
        return None
    names = _way(kind), _way(other_kind)
    below, above = names if found.is_first_below else names[::-1]
    return CrossoverRow(
        op=kind[0], tier=kind[1], n_ranks=kind[2], below=below, above=above,
        size_bytes=found.size_bytes, low_bytes=found.low_bytes, high_bytes=found.high_bytes,
    )  # fmt: skip


def _way(kind: Kind) -> str:
    return "/".join(name for name in kind[3:5] if name)


def cost_drifts(fits: Iterable[CostFit], runs: Sequence[str]) -> list[CostDrift]:
    """Of each population what became worse from the first of ``runs`` to each later one."""
    by_kind: dict[tuple[object, ...], dict[str, CostFit]] = defaultdict(dict)
    for fit in fits:
        if fit.no_fit is None:
            kind = fit.op, fit.tier, fit.n_ranks, fit.algorithm, fit.protocol
            by_kind[kind][fit.run] = fit
    return [
        drift
        for own in by_kind.values()
        for run in runs[1:]
        if runs[0] in own and run in own
        for drift in _drift(own[runs[0]], own[run])
    ]


def _drift(before: CostFit, after: CostFit) -> Iterator[CostDrift]:
    is_startup, is_rate = has_drifted(_model(before), _model(after))
    if is_startup or is_rate:
        yield CostDrift(
            op=after.op, tier=after.tier, n_ranks=after.n_ranks, algorithm=after.algorithm,
            protocol=after.protocol, before=before.run, after=after.run,
            is_startup_worse=is_startup, is_rate_worse=is_rate,
        )  # fmt: skip


def _model(fit: CostFit) -> AlphaBeta:
    return AlphaBeta(
        fit.startup_ns, fit.rate_gbs, fit.startup_low_ns, fit.startup_high_ns, fit.rate_low_gbs,
        fit.rate_high_gbs,
    )  # fmt: skip
