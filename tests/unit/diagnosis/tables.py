"""Straggler measures made by hand: quiet noise, and whatever a test plants into it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from comminsight.model.measures import StragglerMeasures
from comminsight.model.verdict import Coverage

MS = 1_000_000
STEP_NS = 100 * MS


def quiet(n_steps: int = 30, n_ranks: int = 8, *, coords: Iterable[str] = ()) -> StragglerMeasures:
    """Steps of 100 ms in which chance costs each rank up to 1 ms."""
    rng = np.random.default_rng(11)
    cost = (rng.exponential(0.3 * MS, (n_steps, n_ranks))).clip(max=MS).astype(np.int64)
    shape = cost.shape
    return StragglerMeasures(
        steps=np.arange(100, 100 + n_steps),
        global_ranks=np.arange(n_ranks),
        hosts=tuple(f"node{rank // 4}" for rank in range(n_ranks)),
        coords=tuple(coords) or ("",) * n_ranks,
        is_complete=np.ones(shape, bool),
        span_ns=np.full(shape, 95 * MS),
        period_ns=np.full(shape, STEP_NS),
        index_pct=np.full(shape, 5.0),
        caused_wait_ns=np.zeros(shape, np.int64),
        waited_ns=np.full(shape, 2 * MS),
        own_delay_ns=cost.copy(),
        transfer_delay_ns=np.zeros(shape, np.int64),
        passed_on_ns=np.zeros(shape, np.int64),
        step_cost_ns=cost,
    )


def late(
    measures: StragglerMeasures,
    rank: int,
    cost_ms: float,
    steps: slice | list[int] = slice(None),
    *,
    is_transfer: bool = False,
) -> StragglerMeasures:
    """``rank`` costs ``cost_ms`` more in ``steps``; the step grows by it and the others wait."""
    cost_ns = round(cost_ms * MS)
    kind = "transfer_delay_ns" if is_transfer else "own_delay_ns"
    changed = {
        name: getattr(measures, name).copy()
        for name in (kind, "step_cost_ns", "period_ns", "span_ns", "waited_ns")
    }
    changed[kind][steps, rank] += cost_ns
    changed["step_cost_ns"][steps, rank] += cost_ns
    changed["period_ns"][steps] += cost_ns
    changed["span_ns"][steps] += cost_ns
    own_wait = changed["waited_ns"][:, rank].copy()
    changed["waited_ns"][steps] += cost_ns
    changed["waited_ns"][:, rank] = own_wait
    return replace(measures, **changed)


def coverage(n_ranks: int = 8, **more: object) -> Coverage:
    """Everything seen, nothing lost."""
    fields: dict[str, object] = {
        "ranks_expected": n_ranks, "ranks_seen": n_ranks, "records_read": 10_000,
    }  # fmt: skip
    fields.update(more)
    return Coverage(**fields)  # type: ignore[arg-type]
