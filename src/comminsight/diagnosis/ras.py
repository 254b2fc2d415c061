"""Verdicts with what NCCL's RAS says beside them.

RAS never makes a verdict and never names a culprit: its counts are of launches, it was asked a
moment later, and what it cannot reach may live. It is shown as evidence of the hang; where it
stands against the verdict that is said, and the verdict is trusted less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from comminsight.analysis.ras import RasJoin, join_ras
from comminsight.diagnosis import codes
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.mismatch import RULE
from comminsight.diagnosis.ras_evidence import entry, ras_evidence
from comminsight.model.hang import HangEvent
from comminsight.model.ops import Op
from comminsight.model.ras import RasReading, launched_by
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, Confidence, Evidence, Message, Verdict

ABSENCES = frozenset({Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP})
CONTRADICTIONS = frozenset({codes.RAS_AHEAD, codes.RAS_DEAD_BUT_ALIVE, codes.RAS_OTHER_PROCESS})
LESS = {Confidence.HIGH: Confidence.MEDIUM, Confidence.MEDIUM: Confidence.LOW}


def with_ras(
    verdicts: Sequence[Verdict],
    readings: Sequence[RasReading],
    event: HangEvent,
    communicators: Sequence[Communicator],
) -> tuple[tuple[Verdict, ...], tuple[Message, ...]]:
    """The verdicts, that of the hang with the answers' evidence; notes where there is none.

    ``event`` is what the hang was judged by.
    """
    hang = next((verdict for verdict in verdicts if verdict.rule == RULE), None)
    if hang is None:
        return tuple(verdicts), tuple(_notes(readings, event, communicators))
    seen = hang
    for reading in readings:
        seen = _supported(seen, reading, event, communicators)
    return tuple(seen if verdict is hang else verdict for verdict in verdicts), ()


def _notes(
    readings: Sequence[RasReading], event: HangEvent, communicators: Sequence[Communicator]
) -> Iterator[Message]:
    for reading in readings:
        join = join_ras(reading.answer, communicators)
        found = ras_evidence(reading, join, event) if join.matches else []
        if found:
            yield _source(reading).message
        yield from (one.message for one in found)
        yield from _missing(reading, join)


def _supported(
    verdict: Verdict, reading: RasReading, event: HangEvent, communicators: Sequence[Communicator]
) -> Verdict:
    join = join_ras(reading.answer, communicators)
    missing = (*verdict.missing, *_missing(reading, join))
    if not join.matches:
        return replace(verdict, missing=missing)
    found = ras_evidence(reading, join, event)
    if reading.observed_mono_ns:  # counts of another moment say nothing of this op
        found = [*_about_absence(verdict, join, event), *found]
    found.sort(key=lambda one: one.message.code not in CONTRADICTIONS)
    if found and found[0].message.code in CONTRADICTIONS:
        missing = (*missing, message(codes.MISSING_RAS_AGREEMENT, source=reading.source))
    stacks = [one for one in verdict.evidence if one.kind == "stack"]
    others = [one for one in verdict.evidence if one.kind != "stack"]
    return replace(
        verdict,
        confidence=_confidence(verdict, found),
        evidence=(*others, _source(reading), *found, *stacks),
        missing=missing,
        next_actions=(*verdict.next_actions, *_actions(found)),
    )


def _confidence(verdict: Verdict, found: Sequence[Evidence]) -> Confidence:
    """Less where RAS counted more launches of the absent rank."""
    is_doubted = any(one.message.code == codes.RAS_AHEAD for one in found)
    return LESS.get(verdict.confidence, verdict.confidence) if is_doubted else verdict.confidence


def _source(reading: RasReading) -> Evidence:
    if reading.observed_mono_ns:
        return entry(codes.RAS_ASKED, source=reading.source)
    return entry(codes.RAS_GIVEN, source=reading.source, timestamp=reading.answer.timestamp)


def _missing(reading: RasReading, join: RasJoin) -> Iterator[Message]:
    if not join.matches:
        yield message(codes.MISSING_RAS_OURS, source=reading.source)
    if not reading.answer.is_whole:
        yield message(codes.MISSING_RAS_END, source=reading.source)
    if reading.answer.n_unread:
        yield message(codes.MISSING_RAS_UNREAD, source=reading.source, n=reading.answer.n_unread)


def _about_absence(verdict: Verdict, join: RasJoin, event: HangEvent) -> Iterator[Evidence]:
    """Whether RAS counts launches of a rank that never entered by the records.

    Fewer launches support the verdict and are listed as such. As many are no contradiction: RAS
    does not count every launch. More are one: by RAS the absent rank is ahead of those who wait.
    """
    bad = verdict.first_bad_op
    match = next((m for m in join.matches if m.communicator.comm_id == verdict.comm_id), None)
    if verdict.cause not in ABSENCES or bad is None or match is None:
        return
    counts = launched_by(match.seen, Op[bad.op.upper()])
    by_rank = {match.named(comm_rank): n for comm_rank, n in counts.items()}
    waiting = {
        op.global_rank
        for op in event.in_flight
        if (op.comm_id, op.match_seq, op.is_replay)
        == (verdict.comm_id, bad.match_seq, bad.is_replay)
    }
    most = max((by_rank[rank] for rank in waiting if rank in by_rank), default=None)
    if most is None:
        return
    ahead = tuple(rank for rank in verdict.culprits if by_rank.get(rank, -1) > most)
    level = tuple(rank for rank in verdict.culprits if by_rank.get(rank, -1) == most)
    for code, ranks in ((codes.RAS_AHEAD, ahead), (codes.RAS_EQUAL, level)):
        if ranks:
            comm = bad.comm_label
            yield entry(code, ranks, verdict.comm_id, op=bad.op, comm=comm, others=most)


def _actions(found: Sequence[Evidence]) -> Iterator[Message]:
    """A process of which only RAS tells that it is gone is worth a look."""
    for one in found:
        if one.message.code in {codes.RAS_DEAD_LEAD, codes.RAS_SILENT}:
            params = one.message.params
            yield message(codes.CHECK_PROCESS, pid=params["pid"], host=params["host"])
