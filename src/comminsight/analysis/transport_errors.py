"""Transfers that got no answer, by NCCL's own lines, with their ends and their age.

Only what a path itself causes counts: no answer after all retries (completion status 12), or a
queue pair that was not brought up in time. Status 5 (flushed) and the errors of others are echoes
of an earlier one; with status 13 (receiver not ready) the other end did answer, and its process
stands still. Numbers: ``ibv_wc_status`` and ``errno``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from comminsight.analysis.log_index import lines_in_order, lines_with
from comminsight.analysis.log_order import apart_at_least_ns
from comminsight.analysis.log_ranks import LogRanks, short_host
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent

NO_ANSWER_STATUS = frozenset({12})
NO_PATH_ERRNO = frozenset({110, 113})  # timed out, no route to host
NO_ANSWERS = frozenset({LogCode.NCCL_IB_COMPLETION, LogCode.NCCL_QP_MODIFY})


@dataclass(frozen=True, slots=True)
class TransportError:
    """One of them. ``age_ns`` counts from when the process had its communicator, None where no
    stamp tells it; ``is_setup``: the connection itself was not made, so it was never used."""

    event: LogEvent
    rank: int
    host: str
    is_setup: bool
    age_ns: int | None

    def told(self, name: str) -> str:
        """A value of the line as text, "" where it has none."""
        return str(self.event.values.get(name, ""))


def transport_errors(logs: Sequence[JobLog], ranks: LogRanks) -> list[TransportError]:
    """All of them, the earliest first where their stamps compare."""
    return sorted(_errors(logs, ranks), key=lambda error: error.event.time.ns)


def _errors(logs: Sequence[JobLog], ranks: LogRanks) -> Iterator[TransportError]:
    complete: dict[tuple[int, int], LogEvent] = {}  # by log and process
    for log, event in lines_in_order(logs, NO_ANSWERS | {LogCode.NCCL_INIT_COMPLETE}):
        process = id(log), event.pid
        if event.code is LogCode.NCCL_INIT_COMPLETE:
            complete[process] = event
        if not is_no_answer(event):
            continue
        begun = complete.get(process)
        yield TransportError(
            event=event,
            rank=ranks.rank_of(log, event),
            host=short_host(event.host or log.host),
            is_setup=event.code is LogCode.NCCL_QP_MODIFY,
            age_ns=apart_at_least_ns(begun, event) if begun is not None else None,
        )


def is_no_answer(event: LogEvent) -> bool:
    """True for a line that says that a path gave no answer."""
    if event.code is LogCode.NCCL_IB_COMPLETION:
        return event.values.get("status") in NO_ANSWER_STATUS
    if event.code is not LogCode.NCCL_QP_MODIFY:
        return False
    is_late = "timed out" in str(event.values.get("error", "")).lower()
    return is_late or event.values.get("number") in NO_PATH_ERRNO


def hosts_by_address(logs: Sequence[JobLog]) -> dict[str, set[str]]:
    """The hosts that gave each address to the others when they began."""
    found: dict[str, set[str]] = defaultdict(set)
    for log, event in lines_with(logs, LogCode.NCCL_BOOTSTRAP):
        found[str(event.values.get("address", ""))].add(short_host(event.host or log.host))
    return found


def peers_of(errors: Sequence[TransportError]) -> list[str]:
    """The addresses at the other ends, each once."""
    named = (error.told("peer") or error.told("remote_gid") for error in errors)
    return sorted({name for name in named if name})


def reporters(errors: Sequence[TransportError]) -> tuple[int, ...]:
    """The ranks that wrote them, as far as they are known."""
    return tuple(sorted({error.rank for error in errors} - {-1}))
