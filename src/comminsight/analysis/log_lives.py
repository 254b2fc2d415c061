"""The lines of the last life of a job whose launcher started all its workers again.

What failed in an earlier life was over when the next one began: it is neither the cause of what
happened later nor to be mixed with it. Where nothing is seen of a later life, there is one only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from comminsight.analysis.log_order import is_before
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

# torchrun keeps the logs of each life in a folder of its own
ATTEMPT = re.compile(r"(?:^|(?<=/))attempt_(\d{1,6})(?=/)", re.ASCII)
# what a launcher says of a life before it starts the next one
OF_THE_END = frozenset(
    {LogCode.ELASTIC_RESTART, LogCode.ELASTIC_FAILURE, LogCode.ELASTIC_ROOT_CAUSE}
)


def last_life(logs: Sequence[JobLog]) -> tuple[JobLog, ...]:
    """``logs`` without the lines that were certainly written in an earlier life of the job."""
    kept = _of_last_attempts(logs)
    restarts = [
        event
        for log in kept
        for event in log.events
        if event.code is LogCode.ELASTIC_RESTART
        and (len(kept) < len(logs) or _is_followed(event, kept))
    ]
    return tuple(_after(log, restarts) for log in kept) if restarts else tuple(kept)


def _of_last_attempts(logs: Sequence[JobLog]) -> list[JobLog]:
    """Without the logs of one attempt beside which a later one of the same job has its own."""
    last: dict[str, int] = {}
    for log in logs:
        for place, number in _attempts(log):
            last[place] = max(number, last.get(place, 0))
    return [log for log in logs if all(n == last[place] for place, n in _attempts(log))]


def _attempts(log: JobLog) -> list[tuple[str, int]]:
    found = ATTEMPT.finditer(log.file)
    return [(log.file[: match.start()], int(match[1])) for match in found]


def _is_followed(restart: LogEvent, logs: Sequence[JobLog]) -> bool:
    """True where a line tells of a worker after the restart."""
    return any(
        event.line > restart.line if event.file == restart.file else is_before(restart, event)
        for log in logs
        for event in log.events
        if event.code not in OF_THE_END
    )


def _after(log: JobLog, restarts: Sequence[LogEvent]) -> JobLog:
    """Without the lines up to the last one that was written before a restart: what has no stamp
    was written when its neighbours were. A log without later lines is of an earlier life."""
    last_line = max((event.line for event in log.events if _is_over(event, restarts)), default=0)
    kept = tuple(event for event in log.events if event.line > last_line)
    n_over = len(log.events) - len(kept)
    tally = replace(log.tally, n_events=log.tally.n_events - n_over)
    return replace(log, events=kept, tally=tally) if n_over else log


def _is_over(event: LogEvent, restarts: Sequence[LogEvent]) -> bool:
    return any(
        event.line <= restart.line if event.file == restart.file else is_before(event, restart)
        for restart in restarts
    )
