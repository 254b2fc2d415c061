"""Results as JSON documents with a ``schema_version``, and the JSON schema of the report.

Two numbers do not fit the 53 bits that JSON readers keep exact and are therefore strings: instants
since the epoch (keys ending in ``_real_ns``, decimal) and ``comm_hash`` (16 hexadecimal digits).
Everything else is as in the model: durations are integers of nanoseconds, ratios 0-1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from comminsight.model.bench import BENCH_SCHEMA_VERSION, BenchRecord, BenchRun, Comparison
from comminsight.model.calibration import CalibrationHistory, CalibrationView
from comminsight.model.checkup import Checkup
from comminsight.model.cost_model import COST_SCHEMA_VERSION, CostReport
from comminsight.model.exposed import EXPOSED_SCHEMA_VERSION, ExposedReport
from comminsight.model.imported import IMPORT_SCHEMA, ImportManifest
from comminsight.model.metadata import METADATA_SCHEMA_VERSION, RunMetadata
from comminsight.model.pairs_view import RankPairs
from comminsight.model.report import REPORT_SCHEMA_VERSION, RunReport, StepRow
from comminsight.model.template_view import TemplateView
from comminsight.model.verdict import Coverage, Message, Verdict
from comminsight.model.views import VIEW_SCHEMA_VERSION, OpStories, StepOps, TemplateScore
from comminsight.model.what_if import WhatIfReport

SCHEMA_ID = "urn:comminsight:schema:"
EPOCH_SUFFIX = "_real_ns"
HASH_KEY = "comm_hash"

_WITHOUT_BOUND = {
    "anyOf": [{"type": "number"}, {"type": "null"}],
    "description": "null: times hardly grow with the size, and no bound can be told",
}
_OTHER_SCHEMAS: dict[str, dict[str, Any]] = {
    EPOCH_SUFFIX: {
        "type": "string",
        "pattern": "^-?[0-9]+$",
        "description": "nanoseconds since the Unix epoch, decimal",
    },
    HASH_KEY: {
        "type": "string",
        "pattern": "^[0-9a-f]{16}$",
        "description": "hash that names the communicator, hexadecimal",
    },
    **dict.fromkeys(("rate_gbs", "rate_low_gbs", "rate_high_gbs", "half_bytes"), _WITHOUT_BOUND),
}


def report_json(report: RunReport) -> bytes:
    """The report as one UTF-8 JSON document that ends with a newline."""
    return _document(report)


def steps_json(
    run_id: str,
    steps: Sequence[StepRow],
    coverage: Coverage,
    scores: Sequence[TemplateScore] = (),
    *,
    step_view: str = "raw",
    notes: Sequence[Message] = (),
    changes: Sequence[Message] = (),
) -> bytes:
    """The steps of a run with their coverage; ``scores`` tell why there are none, ``step_view``
    whose numbers they have (``raw`` or ``calibrated``), ``notes`` what to know about that;
    ``changes`` are what became different from one step to the next."""
    return _document(
        {
            "schema_version": REPORT_SCHEMA_VERSION,
            "run_id": run_id,
            "step_view": step_view,
            "steps": list(steps),
            "coverage": coverage,
            "templates": list(scores),
            "notes": list(notes),
            "changes": list(changes),
        }
    )


def calibration_json(answer: CalibrationView | CalibrationHistory) -> bytes:
    """A correction with the state of the run, or the history of the state."""
    return _document(answer)


def checkup_json(checkup: Checkup) -> bytes:
    """The results of the doctor's checks, as codes with their parameters."""
    return _document(checkup)


def ops_json(view: StepOps) -> bytes:
    """The ops of one rank in one step."""
    return _document(view)


def pairs_json(view: RankPairs) -> bytes:
    """Whom one rank made wait and who made it wait."""
    return _document(view)


def op_json(view: OpStories) -> bytes:
    """One op layer by layer, on the ranks that have it."""
    return _document(view)


def template_scores_json(scores: Sequence[TemplateScore]) -> bytes:
    """How the step templates fared."""
    return _document({"schema_version": VIEW_SCHEMA_VERSION, "templates": list(scores)})


def template_view_json(view: TemplateView) -> bytes:
    """How the templates were chosen, scored and checked; sentences are codes."""
    return _document(view)


def exposed_json(report: ExposedReport) -> bytes:
    """Where communication time goes."""
    return _document(report)


def what_if_json(report: WhatIfReport) -> bytes:
    """The gains of all parts that were tried."""
    return _document(report)


def cost_json(report: CostReport) -> bytes:
    """Cost models, crossovers and drift."""
    return _document(report)


def bench_json(told: BenchRun | Comparison) -> bytes:
    """A plan with the records of its launches, or two records held against each other."""
    return _document(told)


def import_json(manifest: ImportManifest) -> bytes:
    """What an imported run was made of, and what became of every op."""
    return _document(manifest)


def verdict_json(report: RunReport, number: int) -> bytes:
    """One verdict of a report, counted from 1, as the report has it."""
    return _document(report.verdicts[number - 1])


def metadata_json(metadata: RunMetadata) -> bytes:
    """Ranks, communicators, roles, layout, versions and templates of a run."""
    return _document(metadata)


SCHEMAS: dict[str, tuple[type[msgspec.Struct], str, str]] = {
    "run-report": (RunReport, "CommInsight run report", REPORT_SCHEMA_VERSION),
    "verdict": (Verdict, "CommInsight verdict", REPORT_SCHEMA_VERSION),
    "bench-record": (BenchRecord, "CommInsight bench record", BENCH_SCHEMA_VERSION),
    "exposed": (ExposedReport, "CommInsight exposed", EXPOSED_SCHEMA_VERSION),
    "fit": (CostReport, "CommInsight cost models", COST_SCHEMA_VERSION),
    "bench-run": (BenchRun, "CommInsight bench run", BENCH_SCHEMA_VERSION),
    "bench-comparison": (Comparison, "CommInsight bench comparison", BENCH_SCHEMA_VERSION),
    "import": (ImportManifest, "CommInsight import", IMPORT_SCHEMA),
    "run-metadata": (RunMetadata, "CommInsight run metadata", METADATA_SCHEMA_VERSION),
}


def schema(name: str = "run-report") -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of ``report_json`` or of ``metadata_json``."""
    described_type, title, version = SCHEMAS[name]
    (root,), definitions = msgspec.json.schema_components(
        [described_type], ref_template="#/$defs/{name}"
    )
    for definition in definitions.values():
        for key, described in definition.get("properties", {}).items():
            replacement = _OTHER_SCHEMAS.get(EPOCH_SUFFIX if key.endswith(EPOCH_SUFFIX) else key)
            if replacement and described.get("type") != "string":
                described.clear()
                described.update(replacement)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID + name,
        "title": title,
        "version": version,
        **root,
        "$defs": definitions,
    }


def schema_text(name: str = "run-report") -> str:
    """The schema as the published file holds it."""
    encoded = msgspec.json.encode(schema(name), order="sorted")
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _document(value: object) -> bytes:
    plain = _exact(msgspec.to_builtins(value))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def _exact(value: Any, key: str = "") -> Any:
    """``value`` with the numbers of the two kinds above as strings."""
    if isinstance(value, dict):
        return {name: _exact(inner, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(inner, key) for inner in value]
    return _AS_STRING.get(_kind(key), _same)(value) if isinstance(value, int) else value


def _kind(key: str) -> str:
    return EPOCH_SUFFIX if key.endswith(EPOCH_SUFFIX) else key


def _same(value: int) -> object:
    return value


_AS_STRING: dict[str, Callable[[int], object]] = {
    EPOCH_SUFFIX: str,
    HASH_KEY: lambda value: f"{value:016x}",
}
