"""A verdict on an op that went through is not told as a hang."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from comminsight.model.verdict import Cause, Confidence, OpRef, Verdict
from comminsight.report.explain_text import render_explanation
from comminsight.report.text import render_report
from tests.unit.report.reports import COVERAGE, report

UNLIKE = Verdict(
    rule="finished", cause=Cause.ROOT_MISMATCH, confidence=Confidence.HIGH, coverage=COVERAGE,
    culprits=(2,), victims=(0, 1, 3), comm_id=0,
    first_bad_op=OpRef(comm_id=0, comm_label="DP dp#0", op="broadcast", match_seq=7),
)  # fmt: skip


@pytest.mark.parametrize("is_hang", [False, True])
def test_only_a_hang_keeps_others_waiting(is_hang: bool) -> None:
    given = report(replace(UNLIKE, rule="hang") if is_hang else UNLIKE)
    text = render_report(given)
    assert "named another root" in text
    assert ("hung there" in text) is is_hang
    assert ("\nHang\n" in text) is is_hang
    assert ("\nCulprit\n" in text) is not is_hang
    told = render_explanation(given, 1, ["run"])
    assert ("did not progress" in told) is is_hang
