"""Whether a line was written in the days of the job.

Logs of a host go back for weeks: they tell of GPUs and processes that earlier jobs used, and
numbers of processes come again. A stamp without a year is compared by its place in the year.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import ClockKind, LogEvent

DAY_NS = 86_400_000_000_000
YEAR_NS = 31_556_952_000_000_000  # the mean one of the calendar
SLACK_NS = 2 * DAY_NS  # zones that are not told
LEAP_NS = 2 * DAY_NS  # how far a date may be from its place in the mean year

DATED = frozenset({ClockKind.ZONED, ClockKind.NO_YEAR})
Days = Mapping[ClockKind, tuple[int, int]]


def job_days(logs: Sequence[JobLog]) -> Days:
    """The first and the last stamp of all lines but the kernel's, by what the stamps state."""
    found: dict[ClockKind, tuple[int, int]] = {}
    for log in logs:
        for event in log.events:
            if is_dated(event) and not event.code.value.startswith("kernel_"):
                kind, ns = event.time.kind, event.time.ns
                first, last = found.get(kind, (ns, ns))
                found[kind] = min(first, ns), max(last, ns)
    return found


def is_dated(event: LogEvent) -> bool:
    """True where the stamp of the line tells a day."""
    return event.time.kind in DATED


def is_of_other_days(event: LogEvent, days: Days) -> bool:
    """True where the line was certainly written days before the first of the job's lines or days
    after the last."""
    if not days or not is_dated(event):
        return False
    return all(_is_outside(event, kind, span) for kind, span in days.items())


def _is_outside(event: LogEvent, kind: ClockKind, span: tuple[int, int]) -> bool:
    first, last = span
    if kind is event.time.kind is ClockKind.ZONED:
        return not first - SLACK_NS <= event.time.ns <= last + SLACK_NS
    slack_ns = SLACK_NS + LEAP_NS
    after_ns = (event.time.ns - first) % YEAR_NS
    return last - first + slack_ns < after_ns < YEAR_NS - slack_ns
