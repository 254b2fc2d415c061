"""Work of one rank by its own log, for which the others waited: data preparation, saving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from comminsight.analysis.log_ends import LogEnds, RankLine
from comminsight.analysis.log_faults import TIMEOUTS, FaultKind
from comminsight.analysis.log_index import lines_with
from comminsight.analysis.log_order import apart_at_least_ns, is_before
from comminsight.analysis.log_ranks import LogRanks
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

MS = 1_000_000
DONE_PCT = 100
NEAR_RATIO = 2  # of the limit: the work may have begun before the others came to wait


@dataclass(frozen=True, slots=True)
class LoggedWork:
    """Lines of one rank about one work, first to last; ``took_ns`` is at least how long it lasted,
    0 where stamps do not tell. ``limit_ns`` is the shortest limit that ran out for others,
    ``waiting`` are those ranks. ``is_open``: its last line does not say that it is done."""

    rank: int
    lines: tuple[LogEvent, ...]
    took_ns: int
    limit_ns: int
    waiting: tuple[int, ...]
    is_open: bool


def logged_work(logs: Sequence[JobLog], ranks: LogRanks, ends: LogEnds) -> list[LoggedWork]:
    """The work of ranks who did not wait themselves, that went on while others ran into a limit,
    or had not ended by then."""
    echoes = ends.of(FaultKind.ECHO)
    late = {
        rank: [line for line in lines if line.event.code in TIMEOUTS]
        for rank, lines in echoes.items()
    }
    timeouts = {rank: lines for rank, lines in late.items() if rank >= 0 and lines}
    found = []
    for rank, lines in _by_rank(logs, ranks).items():
        others = [line for other, own in timeouts.items() if other != rank for line in own]
        own = timeouts.get(rank, [])
        if others:
            near = [line for line in lines if _is_near(line, others, ends)]
            work = _work(rank, near, others) if near and not own else None
            found += [work] if work is not None else []
    return found


def _is_near(line: LogEvent, others: list[RankLine], ends: LogEnds) -> bool:
    """True for a line written while others waited, or not long before: by its stamp, or, where
    that does not tell, because nothing stands behind it in its log."""
    for other in others:
        apart_ns = apart_at_least_ns(line, other.event)
        if apart_ns is not None:
            limit_ns = limit_of(other.event)
            return not limit_ns or apart_ns <= NEAR_RATIO * limit_ns
    return (line.file, line.line) in ends.last_lines


def _work(rank: int, lines: list[LogEvent], others: list[RankLine]) -> LoggedWork | None:
    limits = [ns for line in others if (ns := limit_of(line.event))]
    limit_ns = min(limits, default=0)
    first, last = lines[0], lines[-1]
    took_ns = max(0, apart_at_least_ns(first, last) or 0)
    is_open = _is_open(last)
    began = [line.event for line in others]
    if any(is_before(event, first) for event in began):
        return None  # the others had given up before it began
    lasted = any(is_before(event, last, margin_ns=0) for event in began)
    if not (is_open or lasted):
        return None
    return LoggedWork(
        rank, tuple(lines), took_ns, limit_ns, tuple(sorted({line.rank for line in others})),
        is_open,
    )  # fmt: skip


def limit_of(event: LogEvent) -> int:
    """The limit that ran out, in ns; 0 for lines that do not tell it."""
    value = event.values.get("timeout_ms", event.values.get("waited_ms", 0))
    return value * MS if isinstance(value, int) else 0


def _is_open(event: LogEvent) -> bool:
    is_saved = str(event.values.get("kind", "")).lower() == "saved"
    return not is_saved and event.values.get("done_pct") != DONE_PCT


def _by_rank(logs: Sequence[JobLog], ranks: LogRanks) -> dict[int, list[LogEvent]]:
    """The lines about work by rank, each rank's in the order of its file."""
    found: dict[int, list[LogEvent]] = {}
    for rank, event in _lines(logs, ranks):
        found.setdefault(rank, []).append(event)
    return found


def _lines(logs: Sequence[JobLog], ranks: LogRanks) -> Iterator[tuple[int, LogEvent]]:
    for log, event in lines_with(logs, LogCode.LONG_WORK):
        if (rank := ranks.rank_of(log, event)) >= 0:
            yield rank, event
