"""Which rank failed first by what its own log says, and who only repeats that others are gone.

A fault of its own is an origin unless something shows that it came after: the same rank had
complained of its peers before, another rank had waited for a whole time limit before, or its
launcher had ended it. Where stamps do not order two faults, neither is called the first.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
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
ASKED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGKILL")
# the last words of a process after its traceback
GOING_DOWN = re.compile(
    r"destroy_process_group|process group has NOT been destroyed|NCCL (?:INFO|WARN)|[Aa]bort|"
    r"terminate called|core dumped|Exception|Error|resource_tracker|wandb|^\s|^frame #|"
    r"CUDA|device-side|TORCH_|[Ee]xit|[Tt]erminat|[Kk]illed|^\W*$"
)


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
    # an exception that nobody's log shows the end of may be anybody's, and caught
    nameless = tuple(line for line in faults.pop(-1, []) if line.fault.is_fatal)
    kept, doubted = [], []
    for rank, lines in faults.items():
        found = [line for line in lines if not _is_after(line, echoes, ends)]
        lasting = [line for line in found if not _goes_on(line, echoes.get(rank, []), ends)]
        lasting = [line for line in lasting if _is_confirmed(line, ends, echoes)]
        doubted += found[:1] if found and not lasting else []
        kept += lasting[:1] if lasting else []
    kept = _without_killed(kept, ends)
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
    if any(is_earlier_line(end, line.event) for end in _asked_to_end(line, ends)):
        return True
    if line.fault.kind is FaultKind.KILLED and _has_timeout(echoes.get(line.rank, [])):
        return True  # it wrote that it had waited, and was killed after that
    for rank, lines in echoes.items():
        for echo in lines:
            if rank == line.rank:
                if is_earlier_line(echo.event, line.event):
                    return True
            elif is_before(echo.event, line.event, margin_ns=_margin_ns(line, echo.event)):
                return True
    return False


def _asked_to_end(line: RankLine, ends: LogEnds) -> Iterator[LogEvent]:
    """The lines with which somebody ended the whole job, or this rank of it."""
    yield from ends.cancelled
    if line.rank in ends.closed:
        yield ends.closed[line.rank]


def _margin_ns(line: RankLine, echo: LogEvent) -> int:
    is_at_once = echo.code not in TIMEOUTS
    return REPORT_LAG_NS if line.fault.is_report and is_at_once else MARGIN_NS


def _goes_on(line: RankLine, own_echoes: Sequence[RankLine], ends: LogEnds) -> bool:
    """True when the rank waited for others, ended in order or raised something else after a fault
    that a program may survive."""
    if line.fault.is_fatal:
        return False
    later = [echo for echo in own_echoes if is_earlier_line(line.event, echo.event)]
    if any(echo.event.code in TIMEOUTS for echo in later):
        return True
    if not _failed_by_itself(line.rank, ends) and _ends_in_order(line, ends):
        return True
    return not _is_uncaught(line, ends) and any(_is_uncaught(echo, ends) for echo in later)


def _ends_in_order(line: RankLine, ends: LogEnds) -> bool:
    own = ends.of(FaultKind.LEFT).get(line.rank, [])
    return any(is_earlier_line(line.event, end.event) for end in own)


def _failed_by_itself(rank: int, ends: LogEnds) -> bool:
    """True where a launcher saw it fail by something else than a signal that others send."""
    status = ends.statuses.get(rank, "")
    return bool(status) and not any(name in status for name in ASKED)


def _is_uncaught(line: RankLine, ends: LogEnds) -> bool:
    """True for a traceback with which PyTorch ended its process: it puts the rank before each of
    its lines, which no logger does."""
    event = line.event
    return event.rank >= 0 and event.first_line < event.line and event.file not in ends.labelled


def _is_confirmed(line: RankLine, ends: LogEnds, echoes: dict[int, list[RankLine]]) -> bool:
    """True unless the program may have caught the fault: nothing shows that it ended there."""
    if line.fault.is_fatal or _failed_by_itself(line.rank, ends):
        return True
    if line.fault.is_quoted or _has_more_text(line, ends):
        return False
    is_shown = line.event.file in ends.tails or _is_uncaught(line, ends)
    if is_shown and (line.rank in ends.closed or set(echoes) - {line.rank}):
        return True
    return (line.event.file, line.event.line) in ends.last_lines


def _has_more_text(line: RankLine, ends: LogEnds) -> bool:
    """True where the log of the rank goes on with what no process says while it goes down."""
    tail = ends.tails.get(line.event.file)
    if _is_uncaught(line, ends) or tail is None or tail.line <= line.event.line:
        return False
    told = {(one.event.file, one.event.line) for one in ends.lines}
    return not GOING_DOWN.search(tail.text) and (line.event.file, tail.line) not in told


def _without_killed(lines: list[RankLine], ends: LogEnds) -> list[RankLine]:
    """Without ranks that were killed by whoever saw another one fail, where that is certain."""
    own = [line for line in lines if line.fault.name not in {"killed", "vanished"}]
    is_certain = any(
        one.fault.is_fatal or _failed_by_itself(one.rank, ends) or _is_uncaught(one, ends)
        for one in own
    )
    return own if is_certain else lines


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
    left = {r: lines[0] for r, lines in ends.of(FaultKind.LEFT).items() if r >= 0}
    waiting = {rank for rank, lines in echoes.items() if _has_timeout(lines)} - {-1}
    if any(
        is_earlier_line(echo.event, left[r].event)
        for r in waiting & left.keys()
        for echo in echoes[r]
        if echo.event.code in TIMEOUTS
    ):
        return ()  # what a rank waited for came
    left = {r: line for r, line in left.items() if r not in echoes and r not in ends.statuses}
    if any(len(ranks.claims.get(rank, ())) > 1 for rank in waiting | left.keys()):
        return ()  # of several jobs, or lives of one: who ended may be of another than who waits
    timeouts = [e for r in waiting for e in echoes[r] if e.event.code in TIMEOUTS]
    is_late = any(is_before(e.event, one.event) for one in left.values() for e in timeouts)
    if not waiting or is_late or len(waiting | set(left)) != ranks.world_size:
        return ()
    return tuple(left[rank] for rank in sorted(left))


def _has_timeout(lines: Iterable[RankLine]) -> bool:
    return any(line.event.code in TIMEOUTS for line in lines)
