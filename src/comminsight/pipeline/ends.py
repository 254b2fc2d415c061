"""How processes ended, and the sessions as they stood when the first of them failed."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from comminsight.capture.session import SessionData
from comminsight.capture.standing import standing_slots
from comminsight.diagnosis.first_failure import Fate
from comminsight.diagnosis.first_failure import first_failure as first_of
from comminsight.format.layout import SLOT_IN_FLIGHT
from comminsight.model.hang import Liveness
from comminsight.model.manifest import LaunchManifest, ProcessEnd
from comminsight.model.ops import OpState

BROKEN = (OpState.FAILED, OpState.ABORTED)


@dataclass(frozen=True, slots=True)
class Failure:
    """The first failure of a run: the session, and the moment in its node's monotonic clock."""

    session_id: str
    ended_mono_ns: int
    later: frozenset[str]  # sessions that ended after it


def known_ends(manifests: Sequence[LaunchManifest]) -> dict[str, ProcessEnd]:
    """The end of each session that a launcher saw end."""
    return {end.session_id: end for m in manifests for end in m.ends}


def exit_statuses(manifests: Sequence[LaunchManifest]) -> dict[str, str]:
    """By session: ``exit code 1`` or ``signal 9 (SIGKILL)``; nothing where it is not known."""
    ends = known_ends(manifests).values()
    return {end.session_id: text for end in ends if (text := status_text(end))}


def status_text(end: ProcessEnd) -> str:
    """The status in words, "" when it is not known."""
    if end.exit_signal > 0:
        known = {int(s): s.name for s in signal.Signals}
        return f"signal {end.exit_signal} ({known.get(end.exit_signal, 'unnamed')})"
    return f"exit code {end.exit_code}" if end.exit_code >= 0 else ""


def first_failure(
    sessions: Sequence[SessionData], manifests: Sequence[LaunchManifest]
) -> Failure | None:
    """The failure that everything else followed from; None when no single one can be told."""
    times = end_times(manifests)
    names = {s.identity.session_id: s for s in sessions if s.identity.session_id in times}
    fates = [fate_of(session, *times[name]) for name, session in names.items()]
    first = first_of(fates)
    later = frozenset(f.end.session_id for f in fates if first and f.at_ns > first.at_ns)
    if first is None or not later:
        return None
    return Failure(first.end.session_id, first.end.ended_mono_ns, later)


def fate_of(session: SessionData, at_ns: int, end: ProcessEnd) -> Fate:
    """How the session ended, as the rule takes it."""
    return Fate(
        end,
        at_ns,
        is_waiting=bool(len(session.in_flight)),
        has_broken=bool(np.isin(session.records["state"], BROKEN).any()),
    )


def end_times(manifests: Sequence[LaunchManifest]) -> dict[str, tuple[int, ProcessEnd]]:
    """Wall time in nanoseconds and the end, by session: comparable over nodes as far as their
    clocks agree."""
    return {
        end.session_id: (m.started_real_ns + end.ended_mono_ns - m.started_mono_ns, end)
        for m in manifests
        for end in m.ends
    }


def ended_well(session_id: str, own: Sequence[LaunchManifest]) -> bool:
    """True when the process is known to have ended with 0: by its own end, or where that was not
    seen by those of all launchers of its node (``own``)."""
    seen = [end for m in own for end in m.ends if end.session_id == session_id and status_text(end)]
    if seen:
        return (seen[-1].exit_code, seen[-1].exit_signal) == (0, 0)
    return all((m.exit_code, m.exit_signal) == (0, 0) for m in own)


def as_of(sessions: Sequence[SessionData], failure: Failure) -> tuple[SessionData, ...]:
    """The sessions as they stood at the failure: those that ended later lived and were in the ops
    that failed under them."""
    return tuple(before_consequences(session, failure) for session in sessions)


def before_consequences(session: SessionData, failure: Failure) -> SessionData:
    """One session at that moment."""
    name = session.identity.session_id
    if name == failure.session_id:
        return replace(session, liveness=Liveness.DEAD)
    if name not in failure.later:
        return session
    is_broken = np.isin(session.records["state"], BROKEN)
    broken = standing_slots(session.records[is_broken], session.comms)
    broken["state_word"] = SLOT_IN_FLIGHT
    return replace(
        session,
        liveness=Liveness.ALIVE,
        records=session.records[~is_broken],
        in_flight=np.concatenate([session.in_flight, broken]),
    )
