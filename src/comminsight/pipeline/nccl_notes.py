"""What a reader should know of the NCCL door: ops whose end it cannot see, and what it counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from comminsight.capture.session import SessionData
from comminsight.capture.standing import has_task, is_of_nccl
from comminsight.model.ops import EndReason, NoticeReason, OpState
from comminsight.model.records import is_untimed, n_calls, notices
from comminsight.model.verdict import Message

# events for ops that are over are normal where many are in flight; all others tell of a gap
TOLD_COUNTERS = ("captured_calls", "untracked_groups", "foreign_events", "unknown_events")


def nccl_notes(sessions: Sequence[SessionData]) -> tuple[Message, ...]:
    """Unseen ends by reason, counters above zero, and ranks whose recorder stepped down."""
    return (*_unseen_ends(sessions), *_counters(sessions), *_stepped_down(sessions))


def _unseen_ends(sessions: Iterable[SessionData]) -> Iterator[Message]:
    counts: Counter[int] = Counter()
    for session in sessions:
        rows = session.records[is_untimed(session.records)]
        for reason, n in zip(rows["reason"].tolist(), n_calls(rows).tolist(), strict=True):
            counts[reason] += n
        counts[int(EndReason.NO_TASK)] += _given_up(session)
    counts += Counter()  # without those of none
    for reason, n in sorted(counts.items()):
        yield Message("note.unseen_ends", {"n": n, "reason": end_reason_code(reason)})


def _given_up(session: SessionData) -> int:
    """Calls without any task of which nothing was known when their communicator was given up."""
    rows = session.records[session.records["state"] == OpState.ABORTED]
    return int(n_calls(rows[~has_task(rows) & is_of_nccl(rows, session.comms)]).sum())


def end_reason_code(reason: int) -> str:
    """The catalogue code of an ``EndReason``; of one that is not known here, UNKNOWN's."""
    known = EndReason(reason) if reason in {int(r) for r in EndReason} else EndReason.UNKNOWN
    return f"end_reason.{known.name.lower()}"


def _counters(sessions: Iterable[SessionData]) -> Iterator[Message]:
    totals: Counter[str] = Counter()
    for session in sessions:
        totals.update(session.nccl_counters)
    for name in TOLD_COUNTERS:
        if totals[name]:
            yield Message("note.nccl_counter", {"n": totals[name], "what": f"counter.{name}"})


def _stepped_down(sessions: Iterable[SessionData]) -> Iterator[Message]:
    ranks = [
        s.identity.global_rank
        for s in sessions
        if (notices(s.records)["reason"] == NoticeReason.OVERHEAD_GUARD).any()
    ]
    if ranks:
        yield Message("note.overhead_guard", {"ranks": ranks})
