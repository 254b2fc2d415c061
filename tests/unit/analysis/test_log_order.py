from __future__ import annotations

import pytest

from comminsight.analysis.log_order import apart_at_least_ns, is_before, is_earlier_line
from tests.unit.analysis.log_texts import event_of

S = 1_000_000_000
ZONED = "2026-04-14T16:00:{:02d}.000000Z stderr F CUDA error: x"
LOCAL = "[2026-04-14 16:00:{:02d}] n{}:7:8 [0] NCCL WARN odd"
BARE = "[rank{}]:[E0414 16:00:{:02d}.500000 P.cpp:1] CUDA error: x"


def test_zoned_stamps_compare_over_files() -> None:
    first, second = (event_of(ZONED.format(s), file=f"{s}") for s in (10, 20))
    assert apart_at_least_ns(first, second) == 10 * S - 2000
    assert (is_before(first, second), is_before(second, first)) == (True, False)


@pytest.mark.parametrize(
    ("files", "hosts", "is_told"),
    [(("a", "a"), (1, 2), True), (("a", "b"), (1, 1), True), (("a", "b"), (1, 2), False)],
)
def test_stamps_without_a_zone_compare_in_one_file_and_on_one_host(
    files: tuple[str, str], hosts: tuple[int, int], is_told: bool
) -> None:
    first, second = (
        event_of(LOCAL.format(s, host), file=file)
        for s, host, file in zip((10, 20), hosts, files, strict=True)
    )
    assert is_before(first, second) is is_told


def test_stamps_without_a_year_compare_in_one_file() -> None:
    one, other = event_of(BARE.format(0, 10)), event_of(BARE.format(1, 20))
    assert is_before(one, other)
    assert not is_before(one, event_of(BARE.format(1, 20), file="other.log"))


def test_nothing_is_before_what_was_written_within_the_margin() -> None:
    first, second = event_of(BARE.format(0, 10)), event_of(BARE.format(1, 11))
    assert not is_before(first, second)
    assert is_before(first, second, margin_ns=S // 2)


def test_lines_of_one_process_stand_in_the_order_of_their_writing() -> None:
    first, second = event_of("CUDA error: x"), event_of("CUDA error: y")
    assert not is_earlier_line(first, second)
    assert apart_at_least_ns(first, second) is None
