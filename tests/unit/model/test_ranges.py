from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comminsight.errors import FormatError
from comminsight.model.ranges import range_compress, range_expand


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([7], "7"),
        ([0, 1, 2, 3, 8, 10, 12, 14], "0-3,8-14:2"),
        ([0, 1, 2, 3, 8, 10, 13], "0-3,8,10,13"),
        ([0, 4, 8], "0-8:4"),
        ([0, 4], "0,4"),
        ([3, 2, 1, 0], "3,2,1,0"),
        ([5, 5], "5,5"),
        ([-1, 0, 1, -1], "-1,0-1,-1"),
    ],
)
def test_text_of_small_lists(numbers: list[int], text: str) -> None:
    assert range_compress(numbers) == text
    assert range_expand(text) == numbers


def test_expand_reads_a_step_that_does_not_reach_the_last_number() -> None:
    assert range_expand("0-3, 8,10-15:2") == [0, 1, 2, 3, 8, 10, 12, 14]


@given(st.lists(st.integers(-1, 2**31 - 1)) | st.permutations(list(range(40))))
def test_expand_inverts_compress(numbers: list[int]) -> None:
    assert range_expand(range_compress(numbers)) == numbers


@pytest.mark.parametrize(
    "text",
    ["3-1", "0-4:0", "a", "0,,1", "1-", "0-1-2", "٣", "0-4000000000", "0-9," * 200_000 + "0"],
)
def test_expand_refuses_other_text(text: str) -> None:
    with pytest.raises(FormatError):
        range_expand(text)


@given(st.text(alphabet="0123456789-,: x", max_size=30))
def test_expand_of_any_text_is_a_list_or_a_format_error(text: str) -> None:
    try:
        numbers = range_expand(text)
    except FormatError:
        return
    assert all(isinstance(number, int) for number in numbers)
