from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from comminsight.model.report import RunReport
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Message, Verdict
from comminsight.model.views import OpRow, StepOps, TemplateScore
from comminsight.report import json_form
from tests.unit.report.reports import COVERAGE, HANG, START_NS, STRAGGLER, report, step_row

SCHEMA = Path(__file__).parents[3] / "docs" / "schema" / "run-report.json"


def test_numbers_beyond_53_bits_are_strings() -> None:
    communicator = Communicator(comm_id=0, comm_hash=2**63 + 5, ordinal=0, members=(0, 1))
    read = json.loads(json_form.report_json(report(STRAGGLER, communicators=(communicator,))))
    assert read["facts"]["started_real_ns"] == str(START_NS)
    assert read["communicators"][0]["comm_hash"] == "8000000000000005"
    assert read["communicators"][0]["members"] == [0, 1]
    assert read["steps"][0]["period_ns"] == 114_000_000
    assert read["schema_version"] == "1.0.0"


def test_the_document_is_the_model_but_for_the_strings() -> None:
    plain = json.loads(json_form.report_json(report(STRAGGLER, HANG)))
    for key in ("started_real_ns", "ended_real_ns"):
        plain["facts"][key] = int(plain["facts"][key])
    assert msgspec.convert(plain, RunReport) == report(STRAGGLER, HANG)


def test_messages_travel_as_codes() -> None:
    verdict: Verdict = msgspec.structs.replace(
        STRAGGLER, missing=(Message("no_clock", {"nodes": ["a"], "ranks": [1, 2]}),)
    )
    read = json.loads(json_form.report_json(report(verdict)))
    assert read["verdicts"][0]["missing"] == [
        {"code": "no_clock", "params": {"nodes": ["a"], "ranks": [1, 2]}}
    ]


def test_the_published_schema_is_the_code() -> None:
    assert SCHEMA.read_text() == json_form.schema_text(), "run tools/gen_schema.py"


def _check(value: object, part: dict[str, object], defs: dict[str, dict[str, object]]) -> None:
    """The little of JSON schema that says whether the document has the published keys and types."""
    reference = part.get("$ref")
    if isinstance(reference, str):
        part = defs[reference.rsplit("/", 1)[1]]
    properties = part.get("properties")
    if isinstance(value, dict) and isinstance(properties, dict):
        assert value.keys() == properties.keys()
        for key, inner in value.items():
            _check(inner, properties[key], defs)
    if isinstance(value, list):
        for inner in value:
            items = part.get("items", {})
            assert isinstance(items, dict)
            _check(inner, items, defs)
    if part.get("type") == "integer":
        assert type(value) is int
    if part.get("type") == "string":
        assert isinstance(value, str)


@pytest.mark.parametrize("verdicts", [(), (STRAGGLER,), (HANG, STRAGGLER)])
def test_documents_follow_the_schema(verdicts: tuple[Verdict, ...]) -> None:
    communicator = Communicator(comm_id=0, comm_hash=7, ordinal=0)
    document = json_form.report_json(report(*verdicts, communicators=(communicator,)))
    schema = json_form.schema()
    _check(json.loads(document), schema, schema["$defs"])


def test_smaller_documents() -> None:
    steps = json.loads(json_form.steps_json("run-1", [step_row(0, 114)], COVERAGE))
    assert steps["steps"][0]["step"] == 0
    assert steps["coverage"]["records_lost"] == 3
    row = OpRow(
        op="send", role="PP", comm_label="PP pp#1", match_seq=1, op_seq=1, size_bytes=8,
        start_offset_ns=0, duration_ns=5, peer=1,
    )  # fmt: skip
    view = StepOps(
        schema_version="1.0.0", run_id="run-1", global_rank=0, host="node-a", step=3,
        template="ddp", start_real_ns=START_NS, span_ns=9, period_ns=0, is_complete=True,
        ops=(row,),
    )  # fmt: skip
    read = json.loads(json_form.ops_json(view))
    assert (read["start_real_ns"], read["ops"][0]["peer"]) == (str(START_NS), 1)
    score = TemplateScore(template="ddp", version=1, priority=10, is_chosen=True)
    scores = json.loads(json_form.template_scores_json([score]))
    assert scores["templates"][0]["is_chosen"] is True
