"""Masking changes no verdict: every field case says the same from its incident file."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.format.safe_pickle import is_pickle
from comminsight.pipeline.diagnose import diagnose
from comminsight.pipeline.incident import make_incident, without_names
from comminsight.pipeline.incident_open import opened
from comminsight.pipeline.masking import Masker
from tests.cases.field_case import FieldCase
from tests.cases.registry import CASES

NAMED = [pytest.param(case, id=f"C{case.number:02d} {case.title}") for case in CASES]


@pytest.mark.parametrize("case", NAMED)
def test_a_case_says_the_same_from_its_incident_file(case: FieldCase, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    scene = case.build(given, **case.variants[0])
    if not isinstance(scene.evidence, Path):
        pytest.skip("its evidence is not in files")
    before = diagnose([scene.evidence])
    out = tmp_path / "x.tar"
    manifest = make_incident(out, before, files=[scene.evidence])
    assert manifest.left_out == {}
    with opened(out) as places:
        after = diagnose(places)
    assert without_names(after) == without_names(before)
    assert names_in(scene.evidence, out) == []


def names_in(folder: Path, out: Path) -> list[str]:
    """Names that the texts of the folder tell and the file still holds."""
    masker = Masker()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not is_pickle(data := path.read_bytes()):
            masker.learn("", data.decode("utf-8", "replace"))
    found = out.read_bytes()
    return [name for name in masker.secrets if name.encode() in found]
