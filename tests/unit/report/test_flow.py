from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from comminsight.report.flow import flow


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("one two three", 8, "one two\nthree"),
        ("等待的源头", 6, "等待的\n源头"),
        ("该 Rank 仍存活", 9, "该 Rank\n仍存活"),
        ("已到齐。慢", 6, "已到\n齐。慢"),
        ("unbreakable", 4, "unbreakable"),
        ("a\nb", 9, "a\nb"),
        ("", 5, ""),
    ],
)
def test_small_texts(text: str, width: int, expected: str) -> None:
    assert flow(text, width) == expected


@given(st.text(alphabet="ab 等待", max_size=60), st.integers(60, 80))
def test_no_line_is_too_wide_and_nothing_is_lost(text: str, width: int) -> None:
    broken = flow(text, width)
    assert "".join(broken.split()) == "".join(text.split())
    assert max(map(cell_len, broken.split("\n"))) <= width


@given(st.text(alphabet="a 等待。，", max_size=60), st.integers(4, 20))
def test_no_line_begins_with_closing_punctuation(text: str, width: int) -> None:
    for line in flow(f"等{text}", width).split("\n"):
        assert not line.startswith(("。", "，")) or " " + line[0] in text
