"""Ops that their rank gave up waiting in, by its log: overdue, however young a dump shows them.

A dump taken before the limit of a watchdog shows a wait that may still end. Where the log of the
rank then tells of a time-out in that op, it did not end.
"""

from __future__ import annotations

from msgspec.structs import replace

from comminsight.analysis.log_index import lines_with
from comminsight.analysis.log_ranks import ranks_of
from comminsight.model.hang import HangEvent, InFlightOp
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode

GIVEN_UP = (LogCode.TORCH_WATCHDOG_TIMEOUT, LogCode.GLOO_TIMEOUT)


def with_given_up(event: HangEvent, job: JobEvidence) -> HangEvent:
    """The event with the ops overdue that logs tell were given up: those that a rank waits in with
    the number that its log names, or the only one that it waits in where the log names none."""
    numbers = _given_up_by_rank(job) if job.logs else {}
    if not numbers:
        return event
    waits: dict[int, int] = {}
    for op in event.waiting:
        waits[op.global_rank] = waits.get(op.global_rank, 0) + 1
    return replace(
        event,
        in_flight=tuple(
            replace(op, is_overdue=True)
            if op.is_observable and _is_given_up(op, numbers, waits)
            else op
            for op in event.in_flight
        ),
    )


def _given_up_by_rank(job: JobEvidence) -> dict[int, set[int]]:
    """By rank the numbers of what it gave up; -1 for one that its line does not number."""
    ranks = ranks_of(job.logs, job.world_size)
    found: dict[int, set[int]] = {}
    for log, line in lines_with(job.logs, *GIVEN_UP):
        seq = line.values.get("seq", -1)
        rank = ranks.rank_of(log, line)
        if rank >= 0:
            found.setdefault(rank, set()).add(seq if isinstance(seq, int) else -1)
    return found


def _is_given_up(op: InFlightOp, numbers: dict[int, set[int]], waits: dict[int, int]) -> bool:
    own = numbers.get(op.global_rank, set())
    return op.match_seq in own or (own == {-1} and waits[op.global_rank] == 1)
