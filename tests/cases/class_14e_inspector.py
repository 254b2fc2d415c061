"""Class 14, NCCL's Inspector: what its files lost is told, and accuses no rank."""

from __future__ import annotations

from pathlib import Path

from comminsight.diagnosis import codes_data, codes_trace
from comminsight.model.verdict import Cause
from tests.builders.inspector import inspector_text, without
from tests.cases.field_case import Expected, FieldCase, Scene
from tests.cases.group_scenes import two, variants

TOLD = (codes_data.HOLES, codes_trace.INSPECTOR_HOLES, codes_trace.INSPECTOR_STARTS)


def overwritten_ring(
    folder: Path, *, n_ranks: int, version: str, rank: int, n_lost: int, n_proxy: int
) -> Scene:
    """Records of the proxy fill the rings of one process, which loses ops of its own in the middle
    (C112): records are missing, and no rank is absent from anything. In the twin all are there."""
    fault, twin = two(folder)
    lost = range(40, 40 + n_lost)
    for place in (fault, twin):
        for one in range(n_ranks):
            is_hit = place == fault and one == rank
            numbers = without(range(200), lost if is_hit else ())
            text = inspector_text(one, n_ranks, numbers, version=version, n_proxy=n_proxy)
            (place / f"node{one // 8}-pid{1000 + one}.log").write_bytes(text)
    return Scene(fault, Expected((Cause.DATA_INCOMPLETE,), told=TOLD), twin)


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        112, "records of the proxy push ops out of the Inspector's rings", overwritten_ring,
        variants(
            {"n_ranks": 4, "version": "v4.3", "rank": 2, "n_lost": 30, "n_proxy": 8},
            {"n_ranks": 16, "version": "v4.4", "rank": 0, "n_lost": 1, "n_proxy": 3},
            {"n_ranks": 2, "version": "v4.2", "rank": 1, "n_lost": 100, "n_proxy": 0},
        ),
    ),
)  # fmt: skip
