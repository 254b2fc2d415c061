from __future__ import annotations

import json

import pytest

from comminsight.model.verdict import Coverage, Message
from comminsight.model.what_if import WHAT_IF_SCHEMA_VERSION, PartKind, WhatIfReport, WhatIfRow
from comminsight.report.json_form import what_if_json
from comminsight.report.whatif_text import render_what_if

MS = 1_000_000
ROWS = (
    WhatIfRow(kind=PartKind.ALL, low_ns=9 * MS, expected_ns=20 * MS, high_ns=30 * MS),
    WhatIfRow(kind=PartKind.RANK, ranks=(3,), low_ns=18 * MS, expected_ns=20 * MS, high_ns=22 * MS),
    WhatIfRow(
        kind=PartKind.NODE, name="node1", ranks=(2, 3), high_ns=50 * MS,
        cannot_tell=Message("what_if.wide", {"low_ns": 0, "high_ns": 50 * MS}),
    ),
    WhatIfRow(
        kind=PartKind.LINK, name="PP mesh_pp#4", ranks=(0, 2), sender=0, receiver=2,
        expected_ns=MS, high_ns=2 * MS,
    ),
    WhatIfRow(kind=PartKind.OP_CLASS, name="DP all_reduce", high_ns=100),
)  # fmt: skip


def report(*rows: WhatIfRow, n_steps: int = 12) -> WhatIfReport:
    return WhatIfReport(
        schema_version=WHAT_IF_SCHEMA_VERSION, run_id="r", step_ns=120 * MS, n_steps=n_steps,
        n_steps_left_out=0, coverage=Coverage(ranks_expected=4, ranks_seen=4), rows=rows,
        missing=(Message("what_if.no_stages", {}),),
    )  # fmt: skip


def test_gains_bounds_and_what_they_do_not_know() -> None:
    text = render_what_if(report(*ROWS), run="x", n_nodes=2, width=120)
    lines = text.splitlines()
    assert lines[0] == "What if: x"
    assert "a step takes 120 ms on average, over 12 steps that were replayed" in lines[1]
    assert [line.split() for line in lines if line.strip().startswith("rank 3")] == [
        ["rank", "3", "20.0", "ms", "18.0", "ms", "22.0", "ms", "100", "ms", "1.200"]
    ]
    assert any(line.split()[-2:] == ["?", "?"] for line in lines if "node node1" in line)
    assert "cannot tell: anything from 0 ns to 50.0 ms" in text
    assert "PP mesh_pp#4, from rank 0 to rank 2" in text
    assert "1 part more would gain less than 0.5% at most" in text
    assert "DP all_reduce" not in text
    assert "No pipeline stages are known" in text


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [60, 120])
def test_every_language_and_width_shows_every_number(lang: str, width: int) -> None:
    text = render_what_if(report(*ROWS), run="x", n_nodes=1, lang=lang, width=width)
    assert "1.200" in text
    assert "18.0 ms" in text


def test_nothing_replayed_is_said_and_no_table_shown() -> None:
    text = render_what_if(report(*ROWS, n_steps=0), run="x")
    assert "No step could be replayed" in text
    assert "1.200" not in text


def test_json_holds_the_same() -> None:
    read = json.loads(what_if_json(report(*ROWS)))
    assert read["rows"][1]["expected_ns"] == 20 * MS
    assert read["rows"][2]["cannot_tell"]["code"] == "what_if.wide"
    assert read["rows"][1]["cannot_tell"] is None
