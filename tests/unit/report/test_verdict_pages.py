from __future__ import annotations

import re
from pathlib import Path

import pytest

from comminsight.model.verdict import Cause

PAGE = (Path(__file__).parents[3] / "docs" / "verdicts.md").read_text()
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_every_cause_has_its_section_and_no_other_has() -> None:
    assert set(SECTIONS) == {cause.value for cause in Cause}


@pytest.mark.parametrize("cause", sorted(SECTIONS))
def test_a_section_says_what_it_means_and_what_to_do(cause: str) -> None:
    found = re.findall(r"^\*\*([\w ]+)\.\*\*", SECTIONS[cause], re.MULTILINE)
    assert found == ["Means", "Evidence needed", "Next", "False alarms"]
