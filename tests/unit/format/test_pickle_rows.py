"""Rows that are read in one look: they are what the machine reads step by step."""

from __future__ import annotations

import random
from typing import Any

import pytest

from comminsight.errors import InputError
from comminsight.format import pickle_rows
from comminsight.format.pickle_layouts import Layouts
from comminsight.format.safe_pickle import load_plain
from tests.builders.flight_recorder import parallel_job, torch_pickle

KEYS = ["a", "b", "c", "wide", "text", "list", "pair", "nested"]


def row(rng: random.Random) -> dict[str, Any]:
    """A row of some kind; kinds and texts come again."""
    values: list[Any] = [
        rng.randrange(256), rng.randrange(70_000), rng.choice([None, True, False, 1 << 30]),
        rng.randrange(1 << 62), rng.choice(["x", "y", "z" * 300]),
        [[rng.randrange(9), 8], rng.choice([[], [70_000]])], ("x", rng.choice(["y", "long"])),
        [{"a": rng.randrange(3), "text": rng.choice(["x", "f"])}],
    ]  # fmt: skip
    kept = [pair for pair in zip(KEYS, values, strict=True) if rng.random() < 0.9]
    return dict(kept)


def test_rows_read_as_they_were_written_whatever_was_read_before() -> None:
    layouts = Layouts()
    for seed in range(60):
        rng = random.Random(seed)
        rng.shuffle(KEYS)
        value = [*(row(rng) for _ in range(40)), "x", {"": 1}]
        data = torch_pickle(value)
        assert load_plain(data, layouts=layouts) == value == load_plain(data)


def test_dumps_of_one_job_read_as_they_were_written() -> None:
    job = parallel_job(2, 2, 2).play()
    layouts = Layouts()
    for rank in job.programs:
        document = job.dump(rank)
        assert load_plain(torch_pickle(document), layouts=layouts) == document


def in_steps(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(pickle_rows.Rows, "row", lambda *_: None)
        return outcome(data, Layouts())


def outcome(data: bytes, layouts: Layouts) -> Any:
    try:
        return load_plain(data, layouts=layouts)
    except InputError:
        return InputError


def test_a_changed_byte_means_the_same_in_a_row_and_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values and refusals, also with what was learned from the pickle as it was."""
    layouts, rng = Layouts(), random.Random(5)
    plain = torch_pickle([row(rng) for _ in range(12)])
    load_plain(plain, layouts=layouts)
    n_read = 0
    for _ in range(3_000):
        data = bytearray(plain)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(2, len(data))] = rng.choice(
                [*b"hjKMNJ](eu}q\x86\x88\x8a", 0, 1, 255]
            )
        wanted = in_steps(bytes(data), monkeypatch)
        n_read += wanted is not InputError
        assert repr(outcome(bytes(data), layouts)) == repr(wanted)
    assert n_read > 300


def test_a_number_of_the_memo_that_changes_its_value_changes_what_follows() -> None:
    begin = b"\x80\x02](X\x01\x00\x00\x00aq\x01X\x01\x00\x00\x00bq\x02"
    one = b"}(h\x01K\x07h\x02h\x01u"
    data = begin + one * 3 + b"X\x01\x00\x00\x00cq\x01" + one * 2 + b"e."
    assert load_plain(data) == ["a", "b", *[{"a": 7, "b": "a"}] * 3, "c", *[{"c": 7, "b": "c"}] * 2]


def test_keys_that_are_no_text_are_left_to_the_machine() -> None:
    data = b"\x80\x02](K\x05q\x01}q\x02" + b"}(h\x01K\x07u" * 3 + b"e."
    assert load_plain(data) == [5, {}, {5: 7}, {5: 7}, {5: 7}]
    with pytest.raises(InputError, match="a key of type dict"):
        load_plain(data.replace(b"h\x01K", b"h\x02K"))


def test_a_row_with_the_same_key_twice_keeps_the_last_value() -> None:
    row = b"}(h\x01K\x07h\x01Nh\x01K\x09u"
    data = b"\x80\x02](X\x01\x00\x00\x00aq\x01" + row * 3 + b"e."
    assert load_plain(data) == ["a", *[{"a": 9}] * 3]


def test_a_row_means_what_its_own_pickle_says_whatever_the_last_one_said() -> None:
    """The same bytes, with a text, another text, or no text at the number they refer to."""
    layouts = Layouts()
    begin = b"\x80\x02](X\x01\x00\x00\x00aq\x01"
    rows = b"}(h\x01K\x07X\x01\x00\x00\x00fq\x03h\x02u" + b"}(h\x01K\x07h\x03h\x02u" * 3 + b"e."
    for piece, value in [
        (b"X\x01\x00\x00\x00bq\x02", "b"), (b"X\x01\x00\x00\x00cq\x02", "c"),
        (b"](K\x05eq\x02", [5]), (b"](K\x06eq\x02", [6]), (b"X\x01\x00\x00\x00bq\x02", "b"),
    ] * 2:  # fmt: skip
        found = load_plain(begin + piece + rows, layouts=layouts)
        assert found == ["a", value, *[{"a": 7, "f": value}] * 4]
