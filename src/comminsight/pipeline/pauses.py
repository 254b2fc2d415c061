"""When somebody had switched recording off while the job went on, and what that leaves unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from comminsight.capture.session import SessionData
from comminsight.model.ops import Backend, LossReason, NoticeReason
from comminsight.model.records import notices
from comminsight.model.step import StepSummary
from comminsight.model.verdict import Cause, Confidence, Message, Verdict
from comminsight.pipeline.launches import last_real_ns

ALL_OPS = (1 << 32) - 1  # of an event mask
SWITCHED_OFF = slice(LossReason.BELOW_MIN_SIZE, LossReason.MASKED + 1)


@dataclass(frozen=True, slots=True)
class Pause:
    """A time in which a session recorded no ops; in its own monotonic clock."""

    begin_ns: int
    end_ns: int


def pauses(session: SessionData) -> tuple[Pause, ...]:
    """By its own notices, in order; one that lasts ends with the last sign of life."""
    told = notices(session.records)
    told = told[told["reason"] == NoticeReason.CONTROL]
    found: list[Pause] = []
    begin_ns = 0
    for at_ns, is_on in zip(told["start_ns"].tolist(), told["is_recording"].tolist(), strict=True):
        if not is_on:
            begin_ns = begin_ns or at_ns
        elif begin_ns:
            found.append(Pause(begin_ns, at_ns))
            begin_ns = 0
    if begin_ns:
        last_ns = int(session.records["end_ns"].max(initial=0))
        found.append(Pause(begin_ns, max(begin_ns, last_ns, session.heartbeat_mono_ns)))
    return tuple(found)


def n_switched_off(session: SessionData) -> int:
    """Ops that were passed over because somebody asked for it: off, masked, or too small."""
    return int(session.losses[:, SWITCHED_OFF].sum())


def is_silent(session: SessionData) -> bool:
    """True while an op that the session enters may leave no trace, because somebody asked for it:
    then an op that it lacks was not necessarily left out by its program."""
    told = notices(session.records)
    last = told[told["reason"] == NoticeReason.CONTROL][-1:]
    if is_nccl_masked(session):
        return True
    if not len(last):
        return n_switched_off(session) > 0
    is_all = last["is_recording"] & (last["event_mask"] == ALL_OPS) & (last["min_size_bytes"] == 0)
    return not is_all.all()


def is_nccl_masked(session: SessionData) -> bool:
    """True where NCCL is asked for no events at all, so that it does not even tell calls."""
    is_off = session.settings.get("profiler_mask", 1) == 0
    return is_off and bool((session.comms["backend"] == Backend.NCCL).any())


def without_pauses(
    steps: Mapping[str, tuple[StepSummary, ...]], sessions: Iterable[SessionData]
) -> dict[str, tuple[StepSummary, ...]]:
    """The steps by session; how long one took whose period holds a pause is not known, and it
    counts as incomplete."""
    known = dict(steps)
    for session in sessions:
        name, off = session.identity.session_id, pauses(session)
        if off and name in known:
            known[name] = tuple(
                msgspec.structs.replace(own, period_ns=0, gap_ns=0, coverage_complete=False)
                if any(_holds(own, pause) for pause in off)
                else own
                for own in known[name]
            )
    return known


def _holds(step: StepSummary, pause: Pause) -> bool:
    end_ns = max(step.end_ns, step.start_ns + step.period_ns)
    return step.start_ns <= pause.end_ns and pause.begin_ns <= end_ns


def off_ratio(sessions: Sequence[SessionData]) -> float:
    """Share of the sessions' lives in which recording was off, 0-1."""
    off_ns = lived_ns = 0
    for session in sessions:
        off_ns += sum(pause.end_ns - pause.begin_ns for pause in pauses(session))
        lived_ns += last_real_ns(session) - session.identity.created_real_ns
    return min(1.0, off_ns / lived_ns) if lived_ns > 0 else 0.0


def pause_messages(sessions: Sequence[SessionData], code: str) -> tuple[Message, ...]:
    """One message of ``code`` with the ``ranks`` that paused and ``off_ns``, the longest sum of one
    of them; none where nobody did."""
    off_ns = {
        s.identity.global_rank: sum(p.end_ns - p.begin_ns for p in own)
        for s in sessions
        if (own := pauses(s))
    }
    if not off_ns:
        return ()
    return (Message(code, {"ranks": sorted(off_ns), "off_ns": max(off_ns.values())}),)


def doubted(verdicts: Sequence[Verdict], sessions: Sequence[SessionData]) -> tuple[Verdict, ...]:
    """The verdicts with what nobody recorded among what is missing; a health that was not seen all
    of the time is stated with low confidence."""
    missing = pause_messages(sessions, "reason.recording_off")
    if not missing:
        return tuple(verdicts)
    return tuple(
        msgspec.structs.replace(
            verdict,
            missing=(*verdict.missing, *missing),
            confidence=Confidence.LOW if verdict.cause is Cause.HEALTHY else verdict.confidence,
        )
        for verdict in verdicts
    )
