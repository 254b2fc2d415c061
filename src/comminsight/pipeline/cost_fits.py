"""Cost models of what was given: runs by their own records, tables of nccl-tests."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from comminsight.analysis.alpha_beta_rows import cost_drifts, cost_fits, crossovers
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.cost_model import CostReport


def cost_report(given: Sequence[tuple[str, Sequence[BandwidthRow]]]) -> CostReport:
    """The models of each (name, rows); the first is what the others are held against."""
    rows = [replace(row, run=name) for name, own in given for row in own]
    fits = cost_fits(rows)
    names = list(dict.fromkeys(name for name, _ in given))
    return CostReport(
        fits=tuple(fits), crossovers=tuple(crossovers(rows)),
        drifts=tuple(cost_drifts(fits, names)),
    )  # fmt: skip
