"""Numbers as people read them: one function per unit, the same text on every machine.

A value without meaning (not a number, not finite, out of any calendar) is shown as ``?``, because a
report must come out even when one of its numbers is broken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from comminsight.model.ranges import range_compress
from comminsight.model.units import NS_PER_MS, NS_PER_S, NS_PER_US

UNREADABLE = "?"
MAX_RANK_CHARS = 60

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def finite(value: object) -> float | None:
    """``value`` as a float, None where that says nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def significant(number: float) -> str:
    """Three significant digits without an exponent: 1.24, 52.1, 312, 4,096."""
    size = abs(number)
    digits = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{number:,.{digits}f}"


def duration(value_ns: object) -> str:
    """Nanoseconds in the unit that reads best: ``312 us``, ``52.1 ms``, ``2 min 5 s``."""
    number = finite(value_ns)
    if number is None:
        return UNREADABLE
    size = abs(number)
    if size < NS_PER_US:
        return f"{number:.0f} ns"
    if size < NS_PER_MS:
        return f"{significant(number / NS_PER_US)} us"
    if size < NS_PER_S:
        return f"{significant(number / NS_PER_MS)} ms"
    if size < 100 * NS_PER_S:
        return f"{significant(number / NS_PER_S)} s"
    return _long_duration(number)


def _long_duration(number_ns: float) -> str:
    seconds = round(abs(number_ns) / NS_PER_S)
    sign = "-" if number_ns < 0 else ""
    if seconds < 3600:
        return f"{sign}{seconds // 60} min {seconds % 60} s"
    return f"{sign}{seconds // 3600:,} h {seconds % 3600 // 60} min"


def milliseconds(value_ns: object) -> str:
    """Milliseconds with one decimal and no unit, for a column whose header names the unit."""
    number = finite(value_ns)
    return UNREADABLE if number is None else f"{number / NS_PER_MS:,.1f}"


def percent(ratio: object) -> str:
    """A ratio of 0-1 as percent: ``3.1%``, ``31%``."""
    number = finite(ratio)
    return UNREADABLE if number is None else percent_of_100(number * 100)


def percent_of_100(value_pct: object) -> str:
    """A number that is percent already."""
    number = finite(value_pct)
    if number is None:
        return UNREADABLE
    return f"{number:,.0f}%" if abs(number) >= 9.95 or number == 0 else f"{number:.1f}%"


def size(value_bytes: object) -> str:
    """Bytes in binary units: ``512 B``, ``64 MiB``, ``1.5 GiB``."""
    number = finite(value_bytes)
    if number is None:
        return UNREADABLE
    power = 0
    while abs(number) >= 1024 and power < len(_BYTE_UNITS) - 1:
        number /= 1024
        power += 1
    return f"{_trimmed(significant(number))} {_BYTE_UNITS[power]}"


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def bandwidth(value_gbs: object) -> str:
    """1e9 bytes per second."""
    number = finite(value_gbs)
    return UNREADABLE if number is None else f"{significant(number)} GB/s"


def count(value: object) -> str:
    """A whole number with separators; a fraction keeps three significant digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if value.bit_length() <= 64 else UNREADABLE
    number = finite(value)
    return UNREADABLE if number is None else _trimmed(significant(number))


def instant(epoch_ns: object) -> str:
    """UTC to the second."""
    if not isinstance(epoch_ns, int) or not epoch_ns:
        return UNREADABLE
    try:
        moment = _EPOCH + timedelta(seconds=epoch_ns // NS_PER_S)
    except OverflowError:
        return UNREADABLE
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def rank_list(ranks: Iterable[int]) -> str:
    """Ranks in ascending order, range-compressed; a long text is cut and says how many they are."""
    known = sorted(set(ranks))
    text = range_compress(known)
    if len(text) <= MAX_RANK_CHARS:
        return text
    kept = text[:MAX_RANK_CHARS].rsplit(",", 1)[0]
    return f"{kept},... ({len(known):,})"


def quantity(key: str, value: object) -> str:
    """``value`` in the unit that the ending of ``key`` names: ``_ns``, ``_bytes``, ``_ratio``, …"""
    for ending, form in _BY_ENDING:
        if key.endswith(ending):
            return form(value)
    return count(value)


_BY_ENDING = (
    ("_real_ns", instant),
    ("_ns", duration),
    ("_bytes", size),
    ("_ratio", percent),
    ("_pct", percent_of_100),
    ("_gbs", bandwidth),
)
