from __future__ import annotations

import pytest
from msgspec.structs import replace

from comminsight.cli.choices import FailOn
from comminsight.cli.report import exit_code
from comminsight.errors import ExitCode
from comminsight.model.report import RunReport
from comminsight.model.verdict import Cause, Confidence
from tests.unit.report.reports import COVERAGE, FACTS, STRAGGLER


@pytest.mark.parametrize(
    ("cause", "confidence", "fail_on", "expected"),
    [
        (Cause.COMPUTE_STRAGGLER, Confidence.HIGH, FailOn.NEVER, ExitCode.OK),
        (Cause.COMPUTE_STRAGGLER, Confidence.LOW, FailOn.ANY, ExitCode.FINDING),
        (Cause.COMPUTE_STRAGGLER, Confidence.LOW, FailOn.HIGH, ExitCode.OK),
        (Cause.COMPUTE_STRAGGLER, Confidence.HIGH, FailOn.HIGH, ExitCode.FINDING),
        (Cause.NO_VERDICT, Confidence.NONE, FailOn.ANY, ExitCode.OK),
        (Cause.HEALTHY, Confidence.HIGH, FailOn.ANY, ExitCode.OK),
        (Cause.HEALTHY_IDLE, Confidence.MEDIUM, FailOn.ANY, ExitCode.OK),
    ],
)
def test_what_counts_as_a_finding(
    cause: Cause, confidence: Confidence, fail_on: FailOn, expected: ExitCode
) -> None:
    verdict = replace(STRAGGLER, cause=cause, confidence=confidence)
    made = RunReport(schema_version="1", facts=FACTS, coverage=COVERAGE, verdicts=(verdict,))
    assert exit_code(made, fail_on=fail_on, is_strict=False) == expected
