"""Whether the ranks that a hang is laid to are at work that ends by itself.

Told by a stack inside such work, or by lines of the rank's own log about it that go on while the
others wait. Work that was begun before, or that its last line calls done, is no evidence that it
still lasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from comminsight.analysis.work_frames import Work, WorkFrame, frames_in, work_in
from comminsight.diagnosis import codes, codes_calls
from comminsight.diagnosis.codes import message
from comminsight.model.hang import HangEvent, StackSource
from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence, Evidence, Verdict

MIN_SPAN_NS = 20_000_000_000  # from the first wait to the last line about the work
_KINDS = (
    ("saving", Work.SAVE), ("compil", Work.COMPILE), ("captur", Work.COMPILE), ("mm", Work.COMPILE),
    ("load", Work.LOAD), ("eval", Work.EVALUATE), ("valid", Work.EVALUATE),
)  # fmt: skip
_DONE = ("saved",)
WAITED_FOR = frozenset({Cause.RANK_NOT_ENTERED})


def as_long_work(verdict: Verdict, event: HangEvent, logs: Sequence[JobLog] = ()) -> Verdict:
    """The verdict, as one on long work where each of its culprits is known to be at such work."""
    if verdict.cause not in WAITED_FOR or not verdict.culprits:
        return verdict
    stacks = {rank: work for rank in verdict.culprits if (work := _by_stack(event, rank))}
    began_ns = _began_ns(event, verdict)
    logged = {rank: lines for rank in verdict.culprits if (lines := _lines(logs, rank, began_ns))}
    if not all(rank in stacks or rank in logged for rank in verdict.culprits):
        return verdict
    is_logged = all(rank in logged for rank in verdict.culprits)
    return replace(
        verdict,
        cause=Cause.LONG_LEGIT_OP,
        confidence=_lower(verdict.confidence, is_logged=is_logged),
        evidence=(*_evidence(stacks, logged), *verdict.evidence),
        next_actions=(
            message(codes_calls.RAISE_TIMEOUT, ranks=list(verdict.culprits)),
            *(one for one in verdict.next_actions if one.code != codes.COMPARE_PATHS),
        ),
    )


def _by_stack(event: HangEvent, rank: int) -> WorkFrame | None:
    texts = (
        one.text for one in event.stacks
        if one.global_rank == rank and one.source is not StackSource.NONE
    )  # fmt: skip
    return next((work for text in texts if (work := work_in(frames_in(text)))), None)


def _began_ns(event: HangEvent, verdict: Verdict) -> int:
    """When the first of the others began to wait in the op, in epoch time; 0 where unknown."""
    op = verdict.first_bad_op
    if op is None or not event.observed_real_ns:
        return 0
    starts = [
        one.start_ns for one in event.in_flight
        if (one.comm_id, one.match_seq) == (op.comm_id, op.match_seq)
    ]  # fmt: skip
    offset_ns = event.observed_real_ns - event.observed_mono_ns
    return min(starts) + offset_ns if starts else 0


def _lines(logs: Iterable[JobLog], rank: int, began_ns: int) -> list[LogEvent]:
    """Lines about work that were certainly written after the others had begun to wait; none where
    they stop at once, or where the last one says that it is done."""
    if began_ns <= 0:
        return []
    found = [
        event
        for log in logs
        for event in log.events
        if event.code is LogCode.LONG_WORK
        and rank in {event.rank, log.rank if event.rank < 0 else -1}
        and event.time.error_ns >= 0
        and event.time.ns - event.time.error_ns > began_ns
    ]
    if not found:
        return []
    last = max(found, key=lambda event: event.time.ns)
    is_done = any(word in str(last.values.get("kind", "")).lower() for word in _DONE)
    is_short = last.time.ns - last.time.error_ns - began_ns < MIN_SPAN_NS
    return [] if is_done or is_short else sorted(found, key=lambda event: event.time.ns)


def _lower(confidence: Confidence, *, is_logged: bool) -> Confidence:
    """A stack is one moment, and lines say what a program believes."""
    if not is_logged or confidence is Confidence.LOW:
        return Confidence.LOW
    return Confidence.MEDIUM


def _evidence(
    stacks: dict[int, WorkFrame], logged: dict[int, list[LogEvent]]
) -> Iterator[Evidence]:
    for rank, told in stacks.items():
        said = message(
            codes_calls.DOES_WORK, ranks=[rank], work=f"work.{told.work.value}", frame=told.frame
        )
        yield Evidence(kind="stack", message=said, global_rank=rank)
    for rank, lines in logged.items():
        said = message(
            codes_calls.WORK_LOGGED, rank=rank, work=f"work.{_work_of(lines[-1]).value}",
            n_lines=len(lines),
        )  # fmt: skip
        yield Evidence(kind="log", message=said, global_rank=rank, text=lines[-1].text)


def _work_of(event: LogEvent) -> Work:
    kind = str(event.values.get("kind", "")).lower()
    return next((work for word, work in _KINDS if word in kind), Work.DATA)
