from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comminsight.report import numbers

ANYTHING = st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.booleans())


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.50 us"),
        (312_400, "312 us"),
        (52_140_000, "52.1 ms"),
        (-52_140_000, "-52.1 ms"),
        (1_240_000_000, "1.24 s"),
        (99_900_000_000, "99.9 s"),
        (125_000_000_000, "2 min 5 s"),
        (7_260_000_000_000, "2 h 1 min"),
        (float("nan"), "?"),
        (10**400, "?"),
        ("12", "?"),
    ],
)
def test_duration(value_ns: object, text: str) -> None:
    assert numbers.duration(value_ns) == text


@pytest.mark.parametrize(
    ("value_bytes", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (25 << 20, "25 MiB"),
        (1 << 60, "1,024 PiB"),
    ],
)
def test_size(value_bytes: int, text: str) -> None:
    assert numbers.size(value_bytes) == text


def test_percent_keeps_a_decimal_only_where_it_says_something() -> None:
    assert [numbers.percent(r) for r in (0, 0.001, 0.031, 0.0995, 0.313, 1)] == [
        "0%", "0.1%", "3.1%", "10%", "31%", "100%",
    ]  # fmt: skip


def test_instant_is_utc() -> None:
    assert numbers.instant(1_800_000_000_999_999_999) == "2027-01-15 08:00:00 UTC"
    assert numbers.instant(10**30) == "?"


def test_rank_list_sorts_compresses_and_cuts() -> None:
    assert numbers.rank_list([3, 1, 2, 8, 8]) == "1-3,8"
    pairs = [rank for start in range(0, 900, 9) for rank in (start, start + 1)]
    text = numbers.rank_list(pairs)
    assert text.startswith("0-1,9-10,18-19,")
    assert text.endswith(",... (200)")
    assert len(text) <= numbers.MAX_RANK_CHARS + 12


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("wait_ns", "2.00 us"),
        ("lost_ratio", "200,000%"),
        ("used_pct", "2,000%"),
        ("link_gbs", "2,000 GB/s"),
        ("sent_bytes", "1.95 KiB"),
        ("n_ops", "2,000"),
    ],
)
def test_the_ending_of_a_key_names_the_unit(key: str, text: str) -> None:
    assert numbers.quantity(key, 2000.0) == text


@given(ANYTHING)
def test_no_value_breaks_a_number(value: object) -> None:
    for form in (
        numbers.duration, numbers.milliseconds, numbers.percent, numbers.size, numbers.bandwidth,
        numbers.count, numbers.instant,
    ):  # fmt: skip
        assert form(value)


@given(st.lists(st.integers(-1, 4096), max_size=40))
def test_a_short_rank_list_names_every_rank(ranks: list[int]) -> None:
    text = numbers.rank_list(ranks)
    assert "..." in text or (text == "") == (not ranks)
