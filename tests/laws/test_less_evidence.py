"""Less evidence may silence a verdict or weaken its cause; it never accuses somebody else.

Every scene of the field cases is judged again without each of its files, and without each part of
its evidence: whoever is named then is named with all of it too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from comminsight.diagnosis import codes
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Verdict
from tests.cases.field_case import NO_FINDING, Evidence, FieldCase, judge
from tests.cases.registry import CASES

MAX_FILES = 8  # of a scene are left out in turn
PARTS = (
    "hang", "groups", "frames", "logs", "ras", "hosts", "counters", "links", "bandwidth",
    "activities", "launches", "numbered", "baseline",
)  # fmt: skip
NAMED = [pytest.param(case, id=f"C{case.number:02d} {case.title}") for case in CASES]


@pytest.mark.parametrize("case", NAMED)
def test_less_evidence_accuses_nobody_else(case: FieldCase, tmp_path: Path) -> None:
    wrong = []
    for place, variant in enumerate(case.variants[:2]):
        folder = tmp_path / str(place)
        folder.mkdir()
        scene = case.build(folder, **variant)
        # without what tells them apart, a twin may look like the fault
        named = {*(scene.expected.culprits or ()), *(scene.twin_expected.culprits or ())}
        for evidence, known in (
            (scene.evidence, set(scene.expected.culprits or ())),
            (scene.twin, named),
        ):
            for name, less in lessened(evidence, tmp_path):
                wrong += [(name, said) for said in accused_beyond(judge(less), known)]
    assert wrong == []


def lessened(evidence: Evidence, folder: Path) -> Iterator[tuple[str, Evidence]]:
    """The evidence without one of its files or parts, in turn."""
    if isinstance(evidence, JobEvidence):
        empty = JobEvidence()
        for name in PARTS:
            if getattr(evidence, name) != getattr(empty, name):
                yield name, replace(evidence, **{name: getattr(empty, name)})
    elif isinstance(evidence, Path):
        files = sorted(path for path in evidence.rglob("*") if path.is_file())
        step = max(1, len(files) // MAX_FILES)
        for path in files[::step] if len(files) > 1 else []:
            less = folder / "less"
            shutil.rmtree(less, ignore_errors=True)
            shutil.copytree(evidence, less)
            (less / path.relative_to(evidence)).unlink()
            yield str(path.relative_to(evidence)), less


def accused_beyond(verdicts: tuple[Verdict, ...], known: set[int]) -> list[str]:
    """Findings that name ranks whom all of the evidence does not name. Both sides of a tie may be
    named where one of them is rightly so, and the verdict says that it cannot tell which."""
    return [
        f"{one.cause} {list(one.culprits)}"
        for one in verdicts
        if one.cause not in NO_FINDING
        and not known.issuperset(one.culprits)
        and not (is_tie(one) and known.intersection(one.culprits))
    ]


def is_tie(verdict: Verdict) -> bool:
    return any(said.code == codes.MISSING_MAJORITY for said in verdict.missing)
