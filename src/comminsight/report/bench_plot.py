"""Draws records of benchmarks: time and bus bandwidth over the payload, a line for each launch.

Needs matplotlib (``pip install 'comminsight[plot]'``): whoever may lack it imports this file late.
Labels are the terms and units of the record, in every language the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from comminsight.model.bench import BenchRecord, BenchRow
from comminsight.report.picture import drawing, saved, sheet

INCHES = (9.0, 2.6)  # of one collective


def drawn(records: Sequence[BenchRecord], *, form: str) -> bytes:
    """The picture as ``svg`` or ``png``; two panels for each collective: median milliseconds of the
    slowest rank, and busbw in GB/s of 1e9 bytes. The band beside a line reaches to P95.

    Records without rows have no line; without any there is an empty picture that says so.
    """
    names = list(dict.fromkeys(row.collective for one in records for row in one.metrics.rows))
    with drawing():
        figure = sheet(INCHES[0], INCHES[1] * max(1, len(names)))
        if not names:
            figure.text(0.5, 0.5, "nothing was measured", ha="center")
        else:
            _collectives(figure, records, names)
        return saved(figure, form)


def _collectives(figure: Figure, records: Sequence[BenchRecord], names: Sequence[str]) -> None:
    panels = figure.subplots(len(names), 2, squeeze=False)
    for (time_panel, rate_panel), name in zip(panels, names, strict=True):
        _panel(time_panel, name, "time [ms]")
        _panel(rate_panel, name, "busbw [GB/s]")
        for number, record in enumerate(records):
            _lines((time_panel, rate_panel), record, name, color=_color(number))
    handles = [
        Line2D([], [], color=_color(number), marker="o", label=_label(record))
        for number, record in enumerate(records)
        if record.metrics.rows
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize="small")


def _color(number: int) -> str:
    return f"C{number % 10}"


def _label(record: BenchRecord) -> str:
    return f"{record.label}: {record.backend} {record.name_requested}"


def _panel(panel: Axes, name: str, unit: str) -> None:
    panel.set_title(name, fontsize="medium")
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel("bytes per rank")
    panel.set_ylabel(unit)
    panel.grid(visible=True, alpha=0.3)


def _lines(panels: tuple[Axes, Axes], record: BenchRecord, name: str, *, color: str) -> None:
    rows = sorted(
        (row for row in record.metrics.rows if row.collective == name),
        key=lambda row: row.payload_bytes_per_rank,
    )
    sizes = [row.payload_bytes_per_rank for row in rows]
    times = [(row.median_max_rank_ms, row.p95_max_rank_ms) for row in rows]
    rates = [(row.busbw_gbps, _p95_busbw(row)) for row in rows]
    for panel, values in zip(panels, (times, rates), strict=True):
        if not values:
            continue
        middle, edge = zip(*values, strict=True)
        panel.plot(sizes, middle, marker="o", markersize=3, color=color)
        panel.fill_between(sizes, middle, edge, color=color, alpha=0.2, linewidth=0)


def _p95_busbw(row: BenchRow) -> float:
    """Bus bandwidth of a call that takes the P95 of the times."""
    return row.busbw_gbps * row.median_max_rank_ms / row.p95_max_rank_ms
