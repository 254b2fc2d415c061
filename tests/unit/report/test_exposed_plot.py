"""The picture: every part of a rank's time, names as they are, equal reports equal pictures."""

from __future__ import annotations

import re

import msgspec
import pytest
from defusedxml.ElementTree import fromstring

from comminsight.model.exposed import ExposedReport, ExposureSource, RankExposed
from comminsight.model.ops import Op
from comminsight.pipeline.exposed import exposed_report
from comminsight.report.exposed_plot import MAX_RANKS, drawn, rank_parts
from tests.builders.activities import US, comm, compute

PNG = b"\x89PNG\r\n"


def report(n_ranks: int = 2, label: str = "world") -> ExposedReport:
    trace = [
        one
        for rank in range(n_ranks)
        for one in (
            compute(rank, 0, 300),
            comm(rank, Op.ALL_REDUCE, 250, 100 + rank, comm_label=label),
            comm(rank, Op.ALL_GATHER, 600, 10, comm_label=label),
        )
    ]
    return exposed_report(trace, ExposureSource.TRACE, world_size=n_ranks)


def words(svg: bytes) -> list[str]:
    return [one.text or "" for one in fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_bar_for_each_rank_and_op() -> None:
    told = words(drawn(report(3), form="svg"))
    assert {"rank 0", "rank 1", "rank 2", "all_reduce world", "all_gather world"} <= set(told)
    assert {"compute", "overlapped", "exposed", "other", "dark", "time [ms]"} <= set(told)
    assert drawn(report(), form="png").startswith(PNG)


def test_parts_of_a_rank_add_up_to_its_time() -> None:
    for one in report().ranks:
        parts = dict(rank_parts(one))
        assert sum(parts.values()) == one.span_ns
        assert (parts["overlapped"], parts["compute"]) == (50 * US, 250 * US)
        assert parts["dark"] == one.dark_ns > 0


def test_what_is_neither_compute_nor_communication_is_other() -> None:
    one = RankExposed(
        global_rank=0, n_steps=1, span_ns=100, compute_ns=30, communication_ns=20,
        overlapped_ns=5, exposed_ns=15, dark_ns=10,
    )  # fmt: skip
    assert dict(rank_parts(one)) == {
        "compute": 25, "overlapped": 5, "exposed": 15, "other": 45, "dark": 10,
    }  # fmt: skip


def test_equal_reports_give_equal_pictures() -> None:
    assert drawn(report(), form="svg") == drawn(report(), form="svg")


@pytest.mark.parametrize("label", ["$x^{", "<b>&\x1b[31m", "\u202egroup", "组 (0-1)", "x" * 200])
def test_names_from_outside_are_shown_and_never_read(label: str) -> None:
    told = [one for one in words(drawn(report(label=label), form="svg")) if "all_reduce" in one]
    assert len(told) == 1
    assert len(told[0]) <= 40
    assert not re.search(r"[\x1b\u202e]", told[0])
    if len(label) < 6 or label[0] == "组":
        assert label in told[0]


def test_many_ranks_are_cut_and_the_title_says_so() -> None:
    told = words(drawn(report(MAX_RANKS + 9), form="svg"))
    assert f"ranks by exposed time ({MAX_RANKS} of {MAX_RANKS + 9})" in told
    assert f"rank {MAX_RANKS + 8}" in told  # has the most exposed time
    assert "rank 0" not in told


def test_no_communication_is_said() -> None:
    made = exposed_report([compute(0, 0, 9)], ExposureSource.TRACE, world_size=1)
    assert "no communication found" in words(drawn(made, form="svg"))
    empty = msgspec.structs.replace(made, ranks=())
    assert drawn(empty, form="png").startswith(PNG)


def test_inferred_compute_is_marked() -> None:
    made = report()
    ranks = tuple(msgspec.structs.replace(one, is_compute_inferred=True) for one in made.ranks)
    told = words(drawn(msgspec.structs.replace(made, ranks=ranks), form="svg"))
    assert "compute (inferred)" in told
