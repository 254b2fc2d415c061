"""Every verdict of every field case and of its twin has a whole chain and follows the schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from comminsight.diagnosis.whole_chain import with_whole_chains
from comminsight.errors import InputError
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.report import RunFacts, RunReport
from comminsight.model.verdict import Coverage, Verdict
from comminsight.pipeline.diagnose import diagnose
from comminsight.report import json_form
from tests.builders.chains import faults
from tests.builders.json_schema import violations
from tests.cases.field_case import Evidence, FieldCase, judge
from tests.cases.registry import CASES

NAMED = [pytest.param(case, id=f"C{case.number:02d} {case.title}") for case in CASES]
SCHEMA = json_form.schema("run-report")
EMPTY = RunReport(
    schema_version="1.0.0", facts=RunFacts(run_id="", path="", world_size=0, ranks_seen=0),
    coverage=Coverage(ranks_expected=0, ranks_seen=0),
)  # fmt: skip


def report_on(evidence: Evidence) -> RunReport:
    """As a user gets it; of what is not in files, the bare verdicts."""
    if isinstance(evidence, Path):
        try:
            return diagnose([evidence])
        except InputError:
            return EMPTY
    verdicts: Sequence[Verdict] = judge(evidence)
    communicators = evidence.communicators if isinstance(evidence, JobEvidence) else ()
    made = replace(EMPTY, communicators=communicators, verdicts=tuple(verdicts))
    return with_whole_chains(made)


@pytest.mark.parametrize("case", NAMED)
def test_chains_are_whole_and_verdicts_follow_the_schema(case: FieldCase, tmp_path: Path) -> None:
    scene = case.build(tmp_path, **case.variants[0])
    reports = [report_on(scene.evidence), report_on(scene.twin)]
    assert reports[0].verdicts
    for report in reports:
        for verdict in report.verdicts:
            assert faults(verdict.chain) == [], verdict.cause
        assert violations(json.loads(json_form.report_json(report)), SCHEMA) == []
