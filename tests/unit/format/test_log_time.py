"""A stamp is placed within its stated uncertainty, or not at all."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comminsight.format.log_reader import LogReader
from comminsight.format.log_time import ZONE_ERROR_NS
from comminsight.model.log_event import ClockKind, LogTime

S = 1_000_000_000
TEXT = "amber-01:7:8 [0] NCCL WARN something"
TRUTH = datetime(2026, 4, 14, 14, 17, 16, 250_000, tzinfo=UTC)


def ns(at: datetime) -> int:
    return round((at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) * 1000


def glog(at: datetime) -> str:
    return f"[E{at.month}{at:%d %H:%M:%S}.{at.microsecond:06}000 P.cpp:1] {TEXT}"


def iso(at: datetime) -> str:
    return f"[{at:%Y-%m-%d %H:%M:%S}.{at.microsecond:06}] {TEXT}"


def syslog(at: datetime) -> str:
    return f"{at:%b} {at.day:2} {at:%H:%M:%S} amber-01 kernel: {TEXT}"


def placed(lines: Sequence[str], file_time_ns: int = 0) -> list[LogTime]:
    reader = LogReader(io.BytesIO("\n".join(lines).encode()))
    times = [event.time for event in reader]
    return [reader.clock.placed(time, file_time_ns=file_time_ns) for time in times]


def stated(line: str) -> LogTime:
    (event,) = LogReader(io.BytesIO(line.encode()))
    return event.time


@pytest.mark.parametrize(
    ("line", "kind", "error_ns"),
    [
        (f"2026-04-14T14:17:16.25Z stderr F {TEXT}", ClockKind.ZONED, S // 100),
        (f"2026-04-14T16:17:16.250000+02:00 {TEXT}", ClockKind.ZONED, 1000),
        (
            f'{{"MESSAGE": "{TEXT}", "__REALTIME_TIMESTAMP": "1776176236250000"}}',
            ClockKind.ZONED,
            1000,
        ),
        (f"2026-04-14T08:47:16.25-0530 amber-01 kernel: {TEXT}", ClockKind.ZONED, S // 100),
        (f"2026-04-14 14:17:16,250 - {TEXT}", ClockKind.NO_ZONE, S // 1000),
        (f"[2026-04-14 14:17:16.250] {TEXT}", ClockKind.NO_ZONE, S // 1000),
    ],
)
def test_a_stamp_says_what_it_states(line: str, kind: ClockKind, error_ns: int) -> None:
    assert stated(line) == LogTime(kind, ns(TRUTH), error_ns)


@pytest.mark.parametrize("line", [glog(TRUTH), syslog(TRUTH)])
def test_without_a_year_there_is_none(line: str) -> None:
    time = stated(line)
    assert time.kind is ClockKind.NO_YEAR
    assert abs(time.ns - ns(TRUTH.replace(year=1972))) < S
    assert placed([line]) == [time]


def test_since_boot_is_an_order_alone() -> None:
    line = f"[  991.250000] {TEXT}"
    assert placed([line]) == [LogTime(ClockKind.BOOT, 991_250_000_000, 1000)]


def test_no_stamp_is_no_time() -> None:
    assert placed([TEXT])[0].kind is ClockKind.NONE


def test_a_line_with_a_zone_and_a_local_stamp_gives_the_zone_to_all_others() -> None:
    local = TRUTH.astimezone(timezone(timedelta(hours=5, minutes=45)))
    both = f"2026-04-14T14:17:16.900000Z stderr F {glog(local)}"
    first, _both, last = placed([glog(local), both, glog(local + timedelta(days=40))])
    assert (first.kind, first.ns, first.error_ns) == (ClockKind.ZONED, ns(TRUTH), 1)
    assert last.ns == ns(TRUTH + timedelta(days=40))


def test_two_lines_that_disagree_on_the_zone_give_none() -> None:
    east, west = (TRUTH.astimezone(timezone(timedelta(hours=one))) for one in (8, -7))
    both = [f"2026-04-14T14:17:16.900000Z stderr F {glog(one)}" for one in (east, west)]
    (first, *_rest) = placed([glog(east), *both])
    assert first.error_ns == ZONE_ERROR_NS + 1


def test_a_stamp_far_from_any_zone_teaches_nothing() -> None:
    late = f"2026-04-14T14:27:16Z stderr F {glog(TRUTH)}"
    assert placed([glog(TRUTH), late])[0].error_ns == ZONE_ERROR_NS + 1


@pytest.mark.parametrize("hours", [-11, 0, 13])
def test_the_year_comes_from_the_time_of_a_file_that_was_written_last(hours: int) -> None:
    begin = datetime(2025, 12, 30, 23, 59, tzinfo=UTC)
    zone = timezone(timedelta(hours=hours))
    stamps = [begin, begin + timedelta(days=3)]
    lines = [glog(one.astimezone(zone)) for one in stamps]
    found = placed(lines, ns(stamps[-1] + timedelta(minutes=5)))
    for time, truth in zip(found, stamps, strict=True):
        assert time.kind is ClockKind.ZONED
        assert abs(time.ns - ns(truth)) <= time.error_ns
        assert time.error_ns <= ZONE_ERROR_NS + S


def test_the_time_of_a_copy_says_nothing() -> None:
    copied = ns(TRUTH + timedelta(days=400))
    assert placed([glog(TRUTH)], copied)[0].kind is ClockKind.NO_YEAR


def test_boot_time_is_placed_by_a_line_that_has_both() -> None:
    lines = [
        f"[  100.000000] {TEXT}",
        f"2026-04-14T14:17:16.250000+00:00 amber-01 kernel: [  991.250000] {TEXT}",
        f"[ 1000.000000] {TEXT}",
    ]
    first, _both, last = placed(lines)
    assert first.ns == ns(TRUTH) - 891_250_000_000
    assert last.ns == ns(TRUTH) + 8_750_000_000
    assert first.error_ns == 2000


def test_two_boots_place_nothing() -> None:
    lines = [
        f"2026-04-14T14:17:16.250000+00:00 amber-01 kernel: [  {second}.250000] {TEXT}"
        for second in (991, 111)
    ]
    assert placed([*lines, f"[ 1000.000000] {TEXT}"])[-1].kind is ClockKind.BOOT


def test_the_29th_of_february_is_no_other_day() -> None:
    leap = datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert abs(placed([glog(leap)], ns(leap))[0].ns - ns(leap)) < S
    assert placed([glog(leap)], ns(leap.replace(year=2026, day=28)))[0].kind is ClockKind.NO_YEAR


@given(
    hours=st.floats(0, 25 * 365 * 24),
    zone_quarters=st.integers(-48, 56),
    spans_s=st.lists(st.floats(0, 40 * 86_400), min_size=1, max_size=6),
    form=st.sampled_from([glog, iso, syslog]),
    has_both=st.booleans(),
    is_copy=st.booleans(),
)
def test_the_truth_lies_within_the_stated_error(
    hours: float, zone_quarters: int, spans_s: list[float], form: object, has_both: bool,
    is_copy: bool,
) -> None:  # fmt: skip
    assert callable(form)
    zone = timezone(timedelta(minutes=15 * zone_quarters))
    at = datetime(2015, 1, 1, tzinfo=UTC) + timedelta(hours=hours)
    truths = [at + timedelta(seconds=span) for span in sorted(spans_s)]
    lines = [form(one.astimezone(zone)) for one in truths]
    if has_both:
        truths.append(truths[-1])
        lines.append(f"{truths[-1]:%Y-%m-%dT%H:%M:%S}.999999Z stderr F {lines[-1]}")
    written = truths[-1] + (timedelta(days=183) if is_copy else timedelta(minutes=1))
    for time, truth in zip(placed(lines, ns(written)), truths, strict=True):
        if time.kind is ClockKind.ZONED:
            assert abs(time.ns - ns(truth)) <= time.error_ns
        assert time.kind is not ClockKind.NO_ZONE
        if has_both:
            assert time.error_ns <= S
