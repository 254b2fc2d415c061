"""Draws where communication time goes: a bar for each rank and a bar for each op.

Needs matplotlib (``pip install 'comminsight[plot]'``): whoever may lack it imports this file late.
Labels are the terms and units of the report, in every language the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from comminsight.model.exposed import ExposedReport, OpExposure, RankExposed
from comminsight.model.units import NS_PER_MS
from comminsight.report.page import printable
from comminsight.report.picture import drawing, saved, sheet

MAX_RANKS, MAX_OPS, MAX_LABEL_CHARS = 64, 12, 40
WIDTH_INCHES, BAR_INCHES, FRAME_INCHES = 9.0, 0.24, 1.3
# told apart by those who see few colours, and by hatching on paper
STYLES = {
    "compute": ("#0072b2", ""),
    "overlapped": ("#56b4e9", "//"),
    "exposed": ("#d55e00", ""),
    "other": ("#cccccc", ".."),
    "dark": ("#444444", ""),
}
Parts = tuple[tuple[str, float], ...]


def drawn(report: ExposedReport, *, form: str) -> bytes:
    """The picture as ``svg`` or ``png``, in milliseconds: above the ranks with the most exposed
    time, each as compute, communication behind compute, exposed communication, other activity, and
    time in which nothing was seen; below the ops with the most exposed time.
    """
    ranks = sorted(report.ranks, key=lambda one: (-one.exposed_ns, one.global_rank))[:MAX_RANKS]
    ops = report.ops[:MAX_OPS]
    heights = [FRAME_INCHES + BAR_INCHES * max(1, len(rows)) for rows in (ranks, ops)]
    with drawing():
        figure = sheet(WIDTH_INCHES, sum(heights))
        above, below = figure.subplots(2, 1, height_ratios=heights)
        _bars(above, [(f"rank {one.global_rank}", rank_parts(one)) for one in ranks])
        above.set_title(_shown("ranks by exposed time", len(ranks), len(report.ranks)))
        _bars(below, [(_op_label(one), _op_parts(one)) for one in ops])
        below.set_title(_shown("ops by exposed time", len(ops), len(report.ops)))
        if not ops:
            below.text(0.5, 0.5, "no communication found", ha="center", transform=below.transAxes)
        figure.legend(handles=_handles(report), loc="outside lower center", ncols=len(STYLES),
                      fontsize="small")  # fmt: skip
        return saved(figure, form)


def rank_parts(one: RankExposed) -> Parts:
    """Nanoseconds by part; they add up to the time of the rank's steps, except where compute of one
    step hides communication of another."""
    told = one.compute_ns + one.exposed_ns + one.dark_ns
    overlapped_ns = min(one.overlapped_ns, one.compute_ns)
    return (
        ("compute", one.compute_ns - overlapped_ns),
        ("overlapped", overlapped_ns),
        ("exposed", one.exposed_ns),
        ("other", max(0, one.span_ns - told)),
        ("dark", one.dark_ns),
    )


def _handles(report: ExposedReport) -> list[Patch]:
    is_inferred = any(one.is_compute_inferred for one in report.ranks)
    return [
        Patch(
            facecolor=color, hatch=hatch, edgecolor="white",
            label="compute (inferred)" if part == "compute" and is_inferred else part,
        )
        for part, (color, hatch) in STYLES.items()
    ]  # fmt: skip


def _op_parts(one: OpExposure) -> Parts:
    return (("exposed", one.exposed_ns), ("overlapped", one.communication_ns - one.exposed_ns))


def _op_label(one: OpExposure) -> str:
    name = printable(f"{one.op} {one.comm_label}".strip())
    return name if len(name) <= MAX_LABEL_CHARS else f"{name[: MAX_LABEL_CHARS - 3]}..."


def _shown(title: str, n_shown: int, n: int) -> str:
    return title if n_shown == n else f"{title} ({n_shown} of {n})"


def _bars(panel: Axes, rows: Sequence[tuple[str, Parts]]) -> None:
    """One bar for each row, the first on top."""
    left = [0.0] * len(rows)
    for number, (part, _) in enumerate(rows[0][1] if rows else ()):
        widths = [parts[number][1] / NS_PER_MS for _, parts in rows]
        color, hatch = STYLES[part]
        if any(widths):
            panel.barh(
                range(len(rows)), widths, left=left, color=color, hatch=hatch, edgecolor="white",
                linewidth=0.3,
            )  # fmt: skip
        left = [begin + width for begin, width in zip(left, widths, strict=True)]
    panel.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize="small")
    panel.invert_yaxis()
    panel.set_xlabel("time [ms]")
    panel.grid(visible=True, axis="x", alpha=0.3)
