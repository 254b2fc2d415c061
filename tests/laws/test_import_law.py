"""An imported run is judged as its files are: ``diagnose PATH`` says what ``import`` and then
``report`` say.

Every field case whose evidence is in files is imported, with its twin; so are real samples.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.model.report import RunReport
from comminsight.pipeline.diagnose import diagnose
from comminsight.pipeline.import_report import report_imported
from comminsight.pipeline.import_run import import_run, read_import
from comminsight.run import open_run
from tests.cases.field_case import FieldCase
from tests.cases.registry import CASES

SAMPLES = Path(__file__).parents[3] / "shared/samples"
FOLDERS = (
    "own-flight-recorder/healthy", "own-flight-recorder/missing", "own-flight-recorder/shape",
    "own-flight-recorder/stuck", "own-flight-recorder/wrongop",
    "nvrx-flight-recorder/gpu_error_1st", "nvrx-flight-recorder/lock_gil_1st", "own-kineto",
)  # fmt: skip
NAMED = [pytest.param(case, id=f"C{case.number:02d} {case.title}") for case in CASES]


def said(report: RunReport) -> list[tuple[object, ...]]:
    return [
        (v.rule, v.cause, v.confidence, v.culprits, v.victims, [link.value for link in v.chain],
         [entry.message.code for entry in v.evidence], [one.code for one in v.missing])
        for v in report.verdicts
    ]  # fmt: skip


def imported(source: Path, out: Path) -> RunReport:
    import_run([source], out)
    manifest = read_import(out)
    assert manifest is not None
    return report_imported(open_run(out).report(), out, manifest)


def holds(source: Path, out: Path) -> None:
    try:
        direct = diagnose([source])
    except InputError:
        with pytest.raises(InputError):
            imported(source, out)
        return
    assert said(imported(source, out)) == said(direct)


@pytest.mark.parametrize("case", NAMED)
def test_a_case_says_the_same_from_an_imported_run(case: FieldCase, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    scene = case.build(given, **case.variants[-1])
    sources = [one for one in (scene.evidence, scene.twin) if isinstance(one, Path)]
    if not sources:
        pytest.skip("its evidence is not in files")
    for number, source in enumerate(sources):
        holds(source, tmp_path / f"run{number}")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_sample_says_the_same_from_an_imported_run(name: str, tmp_path: Path) -> None:
    if not (SAMPLES / name).exists():
        pytest.skip(f"no sample at {SAMPLES / name}")
    holds(SAMPLES / name, tmp_path / "run")
