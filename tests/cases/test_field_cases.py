"""Every field case that can be built is answered rightly, and nobody is accused in its twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.field_case import FieldCase, Grade, answers
from tests.cases.registry import CASES, CLASSES, NOT_COVERED

NAMED = [pytest.param(case, id=f"C{case.number:02d} {case.title}") for case in CASES]


@pytest.mark.parametrize("case", NAMED)
def test_a_field_case_and_its_twin(case: FieldCase, tmp_path: Path) -> None:
    found = answers(case, tmp_path)
    assert [(name, answer.said) for name, answer in found if answer.grade is not Grade.RIGHT] == []


def test_every_case_of_the_list_is_built_or_the_reason_is_given() -> None:
    listed = {number for _, numbers in CLASSES.values() for number in numbers}
    built = [case.number for case in CASES]
    assert listed == set(range(1, 141))
    assert set(built).isdisjoint(NOT_COVERED)
    assert set(built) | set(NOT_COVERED) <= listed
