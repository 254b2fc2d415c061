"""Stamps of log lines: what each states, and what the other stamps of a file add to it.

A stamp without zone or year is never completed by a guess: the zone comes from a line that has
both, the year from such a line or from the file's own time where the two agree. What is then left
open is the uncertainty, and without any bound there is none but the order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from comminsight.model.log_event import NO_TIME, ClockKind, LogTime

S = 1_000_000_000
DAY_S = 86_400
ZONE_STEP_S = 900
MAX_ZONE_S = 14 * 3600
ZONE_ERROR_NS = MAX_ZONE_S * S
MAX_LAG_S = 60  # between the writing of a line and the second stamp that it gets
BARE_YEAR = 1972  # a leap year, so that February 29 is one
FILE_SLACK_S = 2 * DAY_S  # zones apart and a quiet end: the last stamp is this near the file's time
MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
FRACTION = r"(?:[.,](\d{1,9}))?"
ISO = rf"(\d{{4}})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d){FRACTION} ?(Z|[+-]\d\d:?\d\d)?"
GLOG = rf"[EWIF](\d{{1,2}})(\d\d) (\d\d):(\d\d):(\d\d){FRACTION}"
CLOCK = r"(\d\d):(\d\d):(\d\d)"
SYSLOG = rf"([A-Z][a-z][a-z]) {{1,2}}(\d{{1,2}}) {CLOCK}{FRACTION}"
CTIME = rf"[A-Z][a-z][a-z] ([A-Z][a-z][a-z]) {{1,2}}(\d{{1,2}}) {CLOCK} (\d{{4}})"
BOOT = r"(\d{1,9})\.(\d{6})"


def _epoch_ns(year: int, month: int, day: int, clock: tuple[str, ...], fraction: str) -> int | None:
    """The nanoseconds of a wall clock read as UTC; None for a date that there is not."""
    try:
        hour, minute, second = map(int, clock)
        leap = second == 60
        stamp = datetime(year, month, day, hour, minute, 59 if leap else second, tzinfo=UTC)
    except ValueError:
        return None
    seconds = int((stamp - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)) + leap
    return seconds * S + int(fraction.ljust(9, "0"))


def _resolution_ns(fraction: str) -> int:
    return int(10 ** (9 - len(fraction)))


def _time(
    kind: ClockKind, year: int, month: int, day: int, clock: tuple[str, ...], fraction: str | None
) -> LogTime:
    fraction = fraction or ""
    ns = _epoch_ns(year, month, day, clock, fraction)
    return NO_TIME if ns is None else LogTime(kind, ns, _resolution_ns(fraction))


def iso_time(*parts: str | None) -> LogTime:
    """The time of the eight groups of ``ISO``."""
    year, month, day, hour, minute, second = (part or "" for part in parts[:6])
    fraction, zone = parts[6], parts[7]
    kind = ClockKind.ZONED if zone else ClockKind.NO_ZONE
    made = _time(kind, int(year), int(month), int(day), (hour, minute, second), fraction)
    if not zone or zone == "Z" or made is NO_TIME:
        return made
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    if minutes * 60 > MAX_ZONE_S:
        return NO_TIME
    return LogTime(kind, made.ns - int(f"{zone[0]}1") * minutes * 60 * S, made.error_ns)


def glog_time(*parts: str | None) -> LogTime:
    """The time of the six groups of ``GLOG``."""
    month, day, hour, minute, second = (part or "" for part in parts[:5])
    clock = (hour, minute, second)
    return _time(ClockKind.NO_YEAR, BARE_YEAR, int(month), int(day), clock, parts[5])


def syslog_time(*parts: str | None) -> LogTime:
    """The time of the six groups of ``SYSLOG``."""
    name, day, hour, minute, second = (part or "" for part in parts[:5])
    if (month := MONTHS.get(name)) is None:
        return NO_TIME
    return _time(ClockKind.NO_YEAR, BARE_YEAR, month, int(day), (hour, minute, second), parts[5])


def ctime_time(*parts: str | None) -> LogTime:
    """The time of the six groups of ``CTIME``."""
    name, day, hour, minute, second, year = (part or "" for part in parts)
    if (month := MONTHS.get(name)) is None:
        return NO_TIME
    return _time(ClockKind.NO_ZONE, int(year), month, int(day), (hour, minute, second), "")


def boot_time(*parts: str | None) -> LogTime:
    """The time of the two groups of ``BOOT``."""
    seconds, micros = (part or "" for part in parts)
    return LogTime(ClockKind.BOOT, int(seconds) * S + int(micros) * 1000, 1000)


TimeOf = Callable[..., LogTime]
RANK_OF_KIND = {
    ClockKind.NONE: 0,
    ClockKind.BOOT: 1,
    ClockKind.NO_YEAR: 2,
    ClockKind.NO_ZONE: 3,
    ClockKind.ZONED: 4,
}


@dataclass(slots=True)
class FileClock:
    """What the stamps of one file tell of each other, to place those that state less.

    ``zone_ns`` and ``boot_ns`` are what must be taken off a local stamp, and added to one since
    boot; None while unknown, and again when two lines disagree.
    """

    zone_ns: int | None = None
    boot_ns: int | None = None
    boot_kind: ClockKind = ClockKind.NONE
    boot_error_ns: int = 0
    first_dated: LogTime | None = None
    last_dated: LogTime | None = None
    last_bare: LogTime | None = None
    is_zone_torn: bool = False
    is_boot_torn: bool = False

    def best(self, stamps: list[LogTime]) -> LogTime:
        """The stamp of a line that states most; learns from a line with several.

        Where the program's own stamp has no zone and the collector's behind it does, it is the
        program's in that zone: the other one came later.
        """
        if not stamps:
            return NO_TIME
        best = max(stamps, key=lambda stamp: RANK_OF_KIND[stamp.kind], default=NO_TIME)
        own = None
        for stamp in stamps:
            if stamp is not best:
                own = self._pair(best, stamp) or own
        self._note(best)
        return own or best

    def _note(self, stamp: LogTime) -> None:
        if stamp.kind in {ClockKind.ZONED, ClockKind.NO_ZONE}:
            self.first_dated = self.first_dated or stamp
            self.last_dated = stamp
        elif stamp.kind is ClockKind.NO_YEAR:
            self.last_bare = stamp

    def _pair(self, full: LogTime, less: LogTime) -> LogTime | None:
        """What two stamps of one line teach; the second in the zone of the first, if it is one."""
        if less.kind is ClockKind.BOOT:
            self._pair_boot(full, less)
        if full.kind is not ClockKind.ZONED:
            return None
        if less.kind is ClockKind.NO_YEAR:
            less = _in_year_of(less, full)
        return self._pair_zone(full, less) if less.kind is ClockKind.NO_ZONE else None

    def _pair_zone(self, full: LogTime, local: LogTime) -> LogTime | None:
        """The second stamp was set by the collector: apart by the zone and at most the lag."""
        apart_s = (local.ns - full.ns) / S
        zone_s = round(apart_s / ZONE_STEP_S) * ZONE_STEP_S
        if abs(zone_s) > MAX_ZONE_S or abs(apart_s - zone_s) > MAX_LAG_S:
            return None
        zone_ns = zone_s * S
        self.is_zone_torn |= self.zone_ns is not None and self.zone_ns != zone_ns
        self.zone_ns = None if self.is_zone_torn else zone_ns
        return LogTime(ClockKind.ZONED, local.ns - zone_ns, local.error_ns)

    def _pair_boot(self, full: LogTime, less: LogTime) -> None:
        if full.kind in {ClockKind.NONE, ClockKind.BOOT}:
            return
        boot_ns = full.ns - less.ns
        known = self.boot_ns
        far = known is not None and abs(known - boot_ns) > MAX_LAG_S * S
        self.is_boot_torn |= far or (known is not None and self.boot_kind is not full.kind)
        if known is not None:
            self.boot_error_ns = max(self.boot_error_ns, abs(known - boot_ns))
        self.boot_ns = None if self.is_boot_torn else (known if known is not None else boot_ns)
        self.boot_kind = full.kind
        self.boot_error_ns = max(self.boot_error_ns, full.error_ns)

    def placed(self, stamp: LogTime, *, file_time_ns: int = 0) -> LogTime:
        """``stamp`` in epoch time with its uncertainty, ZONED; unchanged where only the order is
        known. ``file_time_ns`` is when the file was last written, 0 unknown."""
        if stamp.kind is ClockKind.BOOT and self.boot_ns is not None:
            error_ns = self.boot_error_ns + stamp.error_ns
            stamp = LogTime(self.boot_kind, stamp.ns + self.boot_ns, error_ns)
        if stamp.kind is ClockKind.NO_YEAR:
            stamp = self._with_year(stamp, file_time_ns)
        if stamp.kind is ClockKind.NO_ZONE:
            if self.zone_ns is None:
                return LogTime(ClockKind.ZONED, stamp.ns, stamp.error_ns + ZONE_ERROR_NS)
            return LogTime(ClockKind.ZONED, stamp.ns - self.zone_ns, stamp.error_ns)
        return stamp

    def _with_year(self, stamp: LogTime, file_time_ns: int) -> LogTime:
        """The stamp in the year nearest to what is dated; the same stamp where nothing is."""
        if self.first_dated is not None and self.last_dated is not None:
            first, last = _in_year_of(stamp, self.first_dated), _in_year_of(stamp, self.last_dated)
            return first if first.ns == last.ns else stamp
        if not file_time_ns or self.last_bare is None:
            return stamp
        written = LogTime(ClockKind.ZONED, file_time_ns, 0)
        last = _in_year_of(self.last_bare, written)
        if abs(last.ns - file_time_ns) > FILE_SLACK_S * S:
            return stamp  # copied, or quiet for long: its time says nothing of the lines
        placed = _in_year_of(stamp, last)
        return placed if placed.ns <= last.ns + DAY_S * S else _moved(stamp, placed, -1)


def _moved(stamp: LogTime, placed: LogTime, years: int) -> LogTime:
    year = datetime.fromtimestamp(placed.ns // S, UTC).year + years
    return _in_year(stamp, year) or stamp


def _in_year_of(stamp: LogTime, near: LogTime) -> LogTime:
    """A stamp without a year in the one that brings it nearest to ``near``."""
    year = datetime.fromtimestamp(near.ns // S, UTC).year
    made = [_in_year(stamp, one) for one in (year - 1, year, year + 1)]
    there = [one for one in made if one is not None]
    return min(there, key=lambda one: abs(one.ns - near.ns), default=stamp)


def _in_year(stamp: LogTime, year: int) -> LogTime | None:
    bare = datetime.fromtimestamp(stamp.ns // S, UTC)
    try:
        placed = bare.replace(year=year)
    except ValueError:  # February 29
        return None
    seconds = int((placed - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1))
    return LogTime(ClockKind.NO_ZONE, seconds * S + stamp.ns % S, stamp.error_ns)
