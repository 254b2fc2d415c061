"""What is written as TOML is read back as the same document."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comminsight.format.toml_text import write_toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.one_of(
    TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXT, inner)), max_leaves=12
)


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_any_document_comes_back(document: dict[str, object]) -> None:
    assert tomllib.loads(write_toml(document)) == document


def test_tables_get_headers_and_long_lists_lines() -> None:
    document = {
        "file_version": 1,
        "template": [{"name": "a", "forbids": [{"role": "TP", "op": "ALL_REDUCE"}] * 3}],
        "more": {"x": []},
    }
    line = '  { role = "TP", op = "ALL_REDUCE" },\n'
    assert write_toml(document) == (
        f'file_version = 1\n\n[[template]]\nname = "a"\nforbids = [\n{line * 3}]\n\n'
        "[more]\nx = []\n"
    )


@pytest.mark.parametrize("value", [None, b"x", {1, 2}])
def test_what_toml_does_not_have_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="TOML has no"):
        write_toml({"key": value})  # type: ignore[dict-item]
