"""The straight line along which the ends of collectives move where one clock is faster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MIN_DRIFT_OPS = 16
SETTLED_RATIO = 0.9  # of the differences lie within the residual
CLEAR_FACTOR = 4.0  # times what the line does not explain


@dataclass(frozen=True, slots=True)
class DriftLine:
    """``ratio`` of the time, ``shift_ns`` over all of it, from ``least_ns`` to ``most_ns``;
    ``residual_ns`` is what the line does not explain."""

    ratio: float
    shift_ns: int
    residual_ns: int
    least_ns: int
    most_ns: int

    @property
    def is_clear(self) -> bool:
        """True where the line explains nearly all."""
        return self.shift_ns > CLEAR_FACTOR * self.residual_ns


def drift_line(at_ns: np.ndarray, gap_ns: np.ndarray) -> DriftLine:
    """The line of ``gap_ns`` over ``at_ns``, three of each at least. By the medians of the first
    and the last third: a few odd ends move neither."""
    order = np.argsort(at_ns, kind="stable")
    at, gap = at_ns[order].astype(float), gap_ns[order].astype(float)
    third = len(at) // 3
    early_at, late_at = np.median(at[:third]), np.median(at[-third:])
    early, late = np.median(gap[:third]), np.median(gap[-third:])
    ratio = float((late - early) / max(late_at - early_at, 1.0))
    on_line = early + ratio * (at - early_at)
    return DriftLine(
        ratio=ratio,
        shift_ns=round(abs(ratio) * float(at[-1] - at[0])),
        residual_ns=round(np.quantile(np.abs(gap - on_line), SETTLED_RATIO)),
        least_ns=int(np.floor(on_line.min())),
        most_ns=int(np.ceil(on_line.max())),
    )
