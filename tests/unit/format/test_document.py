"""What a JSON document may be that is none."""

from __future__ import annotations

import msgspec
import pytest

from comminsight.errors import InputError
from comminsight.format.document import read_document


class Pair(msgspec.Struct):
    """A document."""

    a: int
    b: int = 0


def test_keys_of_a_newer_version_are_passed_over() -> None:
    assert read_document(b'{"a": 1, "c": [2]}', Pair) == Pair(1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b'{"a": 1',
        b'{"a": "1"}',
        b'{"b": 1}',
        b'{"a": 1, "c": "\xff',
        b'{"a": 1, "c": ' + b"[" * 100_000,
    ],
)
def test_anything_else_is_an_error_that_names_the_file(data: bytes) -> None:
    with pytest.raises(InputError, match=r"^x/run\.json: does not read: ") as caught:
        read_document(data, Pair, path="x/run.json", next_step="copy it again")
    assert caught.value.next_step == "copy it again"
