"""Lines of the kernel from other days than those of the job, over zones, years and their ends."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from comminsight.analysis.log_days import is_of_other_days, job_days
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import ClockKind, LogCode, LogEvent, LogTime

S = 1_000_000_000
ZONED, NO_YEAR, BOOT = ClockKind.ZONED, ClockKind.NO_YEAR, ClockKind.BOOT


def line(code: LogCode, kind: ClockKind, day: str) -> LogEvent:
    """``day`` is month-day, with the year before it for a stamp that has one."""
    year, month, number = map(int, (day if kind is ZONED else f"1972-{day}").split("-"))
    ns = int(datetime(year, month, number, 12, tzinfo=UTC).timestamp()) * S
    return LogEvent(code=code, file="a", line=1, first_line=1, text="", time=LogTime(kind, ns, 0))


@pytest.mark.parametrize(
    ("job", "kernel", "is_other"),
    [
        ([(ZONED, "2026-03-03")], (ZONED, "2026-03-01"), False),
        ([(ZONED, "2026-03-03")], (ZONED, "2026-02-28"), True),
        ([(ZONED, "2026-03-03")], (ZONED, "2025-03-03"), True),
        ([(ZONED, "2026-03-03"), (ZONED, "2026-03-20")], (ZONED, "2026-03-12"), False),
        ([(ZONED, "2026-03-03")], (NO_YEAR, "03-04"), False),
        ([(ZONED, "2025-03-03")], (NO_YEAR, "02-03"), True),
        ([(NO_YEAR, "03-03")], (ZONED, "2027-03-02"), False),
        ([(NO_YEAR, "03-03")], (ZONED, "2027-04-02"), True),
        ([(NO_YEAR, "03-03")], (NO_YEAR, "03-20"), True),
        ([(NO_YEAR, "01-01")], (NO_YEAR, "12-31"), False),
        ([(NO_YEAR, "12-31")], (NO_YEAR, "01-01"), False),
        ([(NO_YEAR, "01-01"), (NO_YEAR, "12-31")], (NO_YEAR, "06-01"), False),
        ([(ZONED, "2026-03-03"), (NO_YEAR, "05-03")], (NO_YEAR, "05-04"), False),
        ([(ZONED, "2026-03-03")], (BOOT, "05-04"), False),
        ([], (ZONED, "2026-03-03"), False),
    ],
)
def test_a_line_of_the_kernel_is_of_the_days_of_the_job(
    job: list[tuple[ClockKind, str]], kernel: tuple[ClockKind, str], is_other: bool
) -> None:
    own = [line(LogCode.TORCH_PROGRESS, *one) for one in job]
    old = line(LogCode.KERNEL_XID, ZONED, "2020-01-01")  # widens nothing
    days = job_days([JobLog(file="a", events=(*own, old))])
    assert is_of_other_days(line(LogCode.KERNEL_OOM_KILL, *kernel), days) is is_other
