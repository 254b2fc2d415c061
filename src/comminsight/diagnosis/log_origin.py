"""Which rank failed first by what its own log says, and who only repeats that others are gone.

A fault of its own is an origin unless something shows that it came after: the same rank had
complained of its peers before, another rank had waited for a whole time limit before, or its
launcher had ended it. Where stamps do not order two faults, neither is called the first.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from comminsight.analysis.log_ends import LogEnds, RankLine, ends_of
from comminsight.analysis.log_faults import TIMEOUTS, FaultKind
from comminsight.analysis.log_index import SameLogs
from comminsight.analysis.log_order import MARGIN_NS, is_before, is_earlier_line
from comminsight.analysis.log_ranks import LogRanks, ranks_of
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogEvent

# a launcher looks at its processes every few moments, and peers complain at once
REPORT_LAG_NS = 30_000_000_000


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """``first`` are the lines of the ranks that failed first, one per rank; ``candidates`` those of
    ranks among which nobody can tell the first. ``left`` ended in order while all others waited.
    ``doubted`` had a fault after which they went on, ``nameless`` are faults of unknown ranks.
    ``is_ordered``: stamps show that it came before every other sign."""

    ends: LogEnds
    ranks: LogRanks
    first: tuple[RankLine, ...] = ()
    candidates: tuple[RankLine, ...] = ()
    left: tuple[RankLine, ...] = ()
    doubted: tuple[RankLine, ...] = ()
    nameless: tuple[RankLine, ...] = ()
    echoing: tuple[int, ...] = ()
    is_ordered: bool = False


def log_origin(job: JobEvidence) -> LogOrigin:
    """What the logs of the job say of who failed first."""
    return _log_origin(SameLogs(job.logs), job.world_size)


@functools.lru_cache(maxsize=2)
def _log_origin(key: SameLogs, world_size: int) -> LogOrigin:
    ranks = ranks_of(key.logs, world_size)
    ends = ends_of(key.logs, ranks)
    echoes = ends.of(FaultKind.ECHO)
    faults = ends.of(FaultKind.OWN, FaultKind.KILLED)
    nameless = tuple(faults.pop(-1, []))
    kept, doubted = [], []
    for rank, lines in faults.items():
        found = [line for line in lines if not _is_after(line, echoes, ends)]
        lasting = [line for line in found if not _goes_on(line, echoes.get(rank, []))]
        lasting = [line for line in lasting if _is_confirmed(line, ends, echoes)]
        doubted += found[:1] if found and not lasting else []
        kept += lasting[:1] if lasting else []
    kept = _without_killed(kept)
    first = _the_first(kept)
    return LogOrigin(
        ends=ends,
        ranks=ranks,
        first=first,
        candidates=() if first else tuple(sorted(kept, key=lambda line: line.rank)),
        left=() if kept or nameless else _left(ends, ranks, echoes),
        doubted=tuple(doubted),
        nameless=nameless,
        echoing=tuple(sorted(set(echoes) - {-1})),
        is_ordered=bool(first) and _is_before_all(first[0], echoes),
    )


def _is_after(line: RankLine, echoes: dict[int, list[RankLine]], ends: LogEnds) -> bool:
    """True when the fault follows from something that was said before it."""
    if line.fault.is_report and line.rank in ends.closed:
        return True
    if line.fault.is_report and any(is_earlier_line(end, line.event) for end in ends.cancelled):
        return True
    for rank, lines in echoes.items():
        for echo in lines:
            if rank == line.rank:
                if is_earlier_line(echo.event, line.event):
                    return True
            elif is_before(echo.event, line.event, margin_ns=_margin_ns(line, echo.event)):
                return True
    return False


def _margin_ns(line: RankLine, echo: LogEvent) -> int:
    is_at_once = echo.code not in TIMEOUTS
    return REPORT_LAG_NS if line.fault.is_report and is_at_once else MARGIN_NS


def _goes_on(line: RankLine, own_echoes: Sequence[RankLine]) -> bool:
    """True when the rank waited for others after a fault that a program may survive."""
    return not line.fault.is_fatal and any(
        echo.event.code in TIMEOUTS and is_earlier_line(line.event, echo.event)
        for echo in own_echoes
    )


def _is_confirmed(line: RankLine, ends: LogEnds, echoes: dict[int, list[RankLine]]) -> bool:
    """True unless the program may have caught the fault: nothing shows that it ended there."""
    if line.fault.is_fatal or line.rank in ends.statuses or line.rank in ends.closed:
        return True
    if set(echoes) - {line.rank}:
        return True
    return (line.event.file, line.event.line) in ends.last_lines


def _without_killed(lines: list[RankLine]) -> list[RankLine]:
    """Without ranks that were killed by whoever saw another one fail."""
    own = [line for line in lines if line.fault.name not in {"killed", "vanished"}]
    return own or lines


def _the_first(lines: Sequence[RankLine]) -> tuple[RankLine, ...]:
    """The line that was certainly written before those of all other ranks; none where several may
    have been."""
    for line in lines:
        if all(one is line or is_before(line.event, one.event) for one in lines):
            return (line,)
    return ()


def _is_before_all(line: RankLine, echoes: dict[int, list[RankLine]]) -> bool:
    others = [echo for rank, lines in echoes.items() if rank != line.rank for echo in lines]
    return bool(others) and all(is_before(line.event, e.event, margin_ns=0) for e in others)


def _left(
    ends: LogEnds, ranks: LogRanks, echoes: dict[int, list[RankLine]]
) -> tuple[RankLine, ...]:
    """Ranks that ended in order before the others gave up waiting, where those are all ranks."""
    waiting = {rank for rank, lines in echoes.items() if _has_timeout(lines)} - {-1}
    left = {r: lines[0] for r, lines in ends.of(FaultKind.LEFT).items() if r >= 0}
    left = {r: line for r, line in left.items() if r not in echoes and r not in ends.statuses}
    timeouts = [e for r in waiting for e in echoes[r] if e.event.code in TIMEOUTS]
    is_late = any(is_before(e.event, one.event) for one in left.values() for e in timeouts)
    if not waiting or is_late or len(waiting | set(left)) != ranks.world_size:
        return ()
    return tuple(left[rank] for rank in sorted(left))


def _has_timeout(lines: Iterable[RankLine]) -> bool:
    return any(line.event.code in TIMEOUTS for line in lines)
